// A run of a query as the page knows it: its columns, the newest snapshot, and the rows that were asked for. The main
// result and each pinned panel have one.

import { LOST, type Connection, type Frame, type Request } from "./connection";
import { Rows } from "./frame";
import type { ColumnInfo, Done, Fault, Flow, RunAnswer, SnapshotInfo } from "./messages";

export type RunState = "starting" | "running" | "paused" | "done" | "stopped" | "failed";
export type Change = "started" | "snapshot" | "rows" | "flow" | "state" | "end";

const WINDOW = 500;
const KEPT_WINDOWS = 80;
const ASKED_AT_ONCE = 2;

export class Run {
  readonly id: number;
  columns: ColumnInfo[] = [];
  isProgressive = false;
  why: string | null = null;
  state: RunState = "starting";
  snapshot: SnapshotInfo | null = null;
  flow: Flow | null = null;
  done: Done | null = null;
  fault: Fault | null = null;
  total = 0;
  /** The rows that come with each snapshot: the first 1,000. */
  head: Rows | null = null;
  /** The snapshot that `head` is of. */
  number = -1;

  private readonly windows = new Map<number, { number: number; rows: Rows }>();
  private readonly asked = new Set<number>();
  private wanted: number[] = [];

  constructor(
    private readonly connection: Connection,
    request: Extract<Request, { op: "run" }>,
    private readonly changed: (run: Run, change: Change) => void,
  ) {
    this.id = connection.send(request, {
      answer: (message) => this.answer(message as RunAnswer),
      frame: (frame) => this.frame(frame),
      lost: () => this.fail(LOST),
    });
  }

  get isOver(): boolean {
    return this.state === "done" || this.state === "stopped" || this.state === "failed";
  }

  get isFinal(): boolean {
    return this.done?.is_final ?? this.snapshot?.is_final ?? false;
  }

  private fail(fault: Fault): void {
    if (this.isOver) return;
    this.fault = fault;
    this.state = "failed";
    this.changed(this, "end");
  }

  private answer(message: RunAnswer): void {
    switch (message.type) {
      case "started":
        this.columns = message.columns;
        this.isProgressive = message.is_progressive;
        this.why = message.why;
        this.state = "running";
        this.changed(this, "started");
        break;
      case "snapshot":
        this.snapshot = message;
        this.total = message.rows;
        this.changed(this, "snapshot");
        break;
      case "flow":
        this.flow = message;
        this.changed(this, "flow");
        break;
      case "done":
        this.done = message;
        this.state = message.stopped ? "stopped" : "done";
        this.connection.forget(this.id);
        this.changed(this, "end");
        break;
      case "error":
        this.connection.forget(this.id);
        this.fail(message);
        break;
    }
  }

  private frame({ header, stream }: Frame): void {
    this.head = Rows.read(stream, this.columns, header.first);
    this.number = header.number;
    this.total = header.total;
  }

  /** The row, wherever it lies; null if it is not here. What an older snapshot had stands until the newer rows come. */
  row(index: number): readonly [Rows, number] | null {
    if (this.head && index < this.head.first + this.head.length) return [this.head, index - this.head.first];
    const window = this.windows.get(Math.floor(index / WINDOW));
    const place = index % WINDOW;
    return window && place < window.rows.length ? [window.rows, place] : null;
  }

  /** Sees to it that these rows come, if they are not here or are of an older snapshot. */
  want(first: number, count: number): void {
    const last = Math.min(first + count, this.total) - 1;
    this.wanted = [];
    for (let window = Math.floor(first / WINDOW); window <= Math.floor(last / WINDOW); window++) {
      const inHead = this.head !== null && Math.min((window + 1) * WINDOW, this.total) <= this.head.first + this.head.length;
      const known = this.windows.get(window);
      if (!inHead && !(known && known.number >= this.number)) this.wanted.push(window);
    }
    this.askNext();
  }

  private askNext(): void {
    while (this.asked.size < ASKED_AT_ONCE) {
      const window = this.wanted.find((one) => !this.asked.has(one));
      if (window === undefined) return;
      this.wanted = this.wanted.filter((one) => one !== window);
      this.asked.add(window);
      void this.fetch(window * WINDOW, WINDOW).then(({ rows, number }) => {
        this.windows.delete(window);
        this.windows.set(window, { number: Math.max(number, this.number), rows });
        for (const old of this.windows.keys()) {
          if (this.windows.size <= KEPT_WINDOWS) break;
          this.windows.delete(old);
        }
        this.changed(this, "rows");
      }, () => undefined).finally(() => {
        this.asked.delete(window);
        this.askNext();
      });
    }
  }

  /** Rows of the newest snapshot by a request of their own. */
  async fetch(first: number, count: number): Promise<{ rows: Rows; number: number }> {
    const { header, stream } = await this.connection.ask<Frame>({ op: "rows", of: this.id, first, count });
    return { rows: Rows.read(stream, this.columns, header.first), number: header.number };
  }

  stop(): void {
    if (!this.isOver) this.connection.send({ op: "stop", of: this.id });
  }

  finish(): void {
    if (this.isOver) return;
    if (this.state === "paused") this.resume();
    this.connection.send({ op: "finish", of: this.id });
  }

  pause(): void {
    if (this.state !== "running") return;
    this.connection.send({ op: "pause", of: this.id });
    this.state = "paused";
    this.changed(this, "state");
  }

  resume(): void {
    if (this.state !== "paused") return;
    this.connection.send({ op: "resume", of: this.id });
    this.state = "running";
    this.changed(this, "state");
  }
}
