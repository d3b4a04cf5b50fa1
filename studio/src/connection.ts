// The one WebSocket of the page: requests by number, their answers, frames of rows; it connects again if it is lost.

import { readFrame, type FrameHeader } from "./frame";
import type { Fault, Filter, Hello } from "./messages";

export type Request =
  | { op: "hello" } | { op: "history" } | { op: "jobs" }
  | { op: "check"; sql: string }
  | { op: "complete"; sql: string; position: number }
  | { op: "plan"; sql?: string; plan?: string }
  | { op: "run"; sql?: string; plan?: string; progressive?: boolean; filters?: Filter[]; panel: string }
  | { op: "rows"; of: number; first: number; count: number }
  | { op: "stop" | "finish" | "pause" | "resume"; of: number };

export interface Frame {
  header: FrameHeader;
  stream: Uint8Array;
}

/** Who hears the answers of a request. `end` is called once if the connection is lost before the last of them. */
export interface Listener {
  answer(message: { type: string }): void;
  frame(frame: Frame): void;
  lost(): void;
}

export class ServerError extends Error {
  constructor(readonly fault: Fault) {
    super(fault.message);
  }
}

const LOST: Fault = {
  message: "The connection to the server is lost.", hint: "Is `tsql studio` still running? The page connects again by itself.",
  line: null, column: null, end_line: null, end_column: null,
};

export class Connection {
  private socket: WebSocket | null = null;
  private last = 0;
  private readonly listeners = new Map<number, Listener>();
  private retryMs = 250;

  constructor(
    private readonly opened: (hello: Hello) => void,
    private readonly lost: () => void,
  ) {
    this.connect();
  }

  private connect(): void {
    const address = new URL(location.href); // with its token
    address.protocol = location.protocol === "https:" ? "wss:" : "ws:";
    address.hash = "";
    const socket = new WebSocket(address);
    socket.binaryType = "arraybuffer";
    socket.addEventListener("open", () => {
      this.socket = socket;
      this.retryMs = 250;
      void this.ask<Hello>({ op: "hello" }).then(this.opened, () => undefined);
    });
    socket.addEventListener("message", (event: MessageEvent<string | ArrayBuffer>) => this.receive(event.data));
    socket.addEventListener("close", () => {
      this.socket = null;
      const waiting = [...this.listeners.values()];
      this.listeners.clear();
      for (const listener of waiting) listener.lost();
      this.lost();
      setTimeout(() => this.connect(), this.retryMs);
      this.retryMs = Math.min(this.retryMs * 2, 5000);
    });
  }

  private receive(data: string | ArrayBuffer): void {
    if (typeof data === "string") {
      const message = JSON.parse(data) as { id: number; type: string };
      this.listeners.get(message.id)?.answer(message);
    } else {
      const frame = readFrame(data);
      this.listeners.get(frame.header.id)?.frame(frame);
    }
  }

  /** Sends a request; the number that it got. */
  send(request: Request, listener?: Listener): number {
    const id = ++this.last;
    if (this.socket === null) {
      if (listener) queueMicrotask(() => listener.lost());
      return id;
    }
    if (listener) this.listeners.set(id, listener);
    this.socket.send(JSON.stringify({ ...request, id }));
    return id;
  }

  forget(id: number): void {
    this.listeners.delete(id);
  }

  /** Sends a request that has one answer. */
  ask<T>(request: Request): Promise<T> {
    return new Promise((resolve, reject) => {
      const id = this.send(request, {
        answer: (message) => {
          this.forget(id);
          if (message.type === "error") reject(new ServerError(message as Fault & { type: string }));
          else resolve(message as T);
        },
        frame: (frame) => {
          this.forget(id);
          resolve(frame as T);
        },
        lost: () => reject(new ServerError(LOST)),
      });
    });
  }
}

export { LOST };
