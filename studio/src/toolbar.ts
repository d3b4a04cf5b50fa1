// Run, Stop, Exact, Pause, and how far the run is.

import { button, el } from "./dom";
import type { Run } from "./run";
import { seconds, short } from "./values";

export interface Actions {
  run(): void;
  stop(): void;
  finish(): void;
  pause(): void;
}

export class Toolbar {
  readonly root: HTMLElement;
  private readonly run: HTMLButtonElement;
  private readonly stop: HTMLButtonElement;
  private readonly exact: HTMLButtonElement;
  private readonly pause: HTMLButtonElement;
  private readonly progressive = el("input", { type: "checkbox", checked: true });
  private readonly bar = el("div", { class: "progress-bar", role: "progressbar", "aria-label": "part of the input that is read", "aria-valuemin": 0, "aria-valuemax": 100 });
  private readonly text = el("span", { class: "progress-text" });
  private readonly spoken = el("span", { class: "unseen", role: "status" });
  private readonly note = el("span", { class: "progress-note" });

  constructor(actions: Actions) {
    const mac = /Mac|iPhone|iPad/.test(navigator.platform);
    this.run = button("run the query", actions.run, { name: "run", text: "Run", kind: "primary" });
    this.run.append(el("kbd", {}, mac ? "⌘↵" : "Ctrl ↵"));
    this.stop = button("stop here: the answer stands as it is", actions.stop, { name: "stop", text: "Stop" });
    this.exact = button("skip to the exact answer", actions.finish, { name: "exact", text: "Exact" });
    this.pause = button("pause", actions.pause, { name: "pause", text: "Pause" });
    this.pause.classList.add("pause");
    this.root = el("div", { class: "toolbar" },
      el("div", { class: "bar", role: "toolbar", "aria-label": "run" }, this.run, this.stop, this.exact, this.pause,
        el("label", { class: "check", title: "show the result while it is computed" }, this.progressive, "Progressive"),
        el("span", { class: "stretch" }), this.note, this.text, this.spoken),
      this.bar);
    this.show(null);
  }

  get isProgressive(): boolean {
    return this.progressive.checked;
  }

  show(run: Run | null): void {
    const runs = run !== null && !run.isOver;
    this.stop.disabled = !runs;
    this.exact.disabled = !runs || !run.isProgressive;
    this.pause.disabled = !runs || !run.isProgressive;
    const isPaused = run?.state === "paused";
    (this.pause.lastChild as HTMLElement).textContent = isPaused ? "Resume" : "Pause";
    this.pause.setAttribute("aria-label", isPaused ? "resume" : "pause");
    this.pause.title = isPaused ? "resume" : "pause";
    this.root.dataset.state = run?.state ?? "idle";
    const snapshot = run?.snapshot ?? null;
    const progress = run?.state === "done" && run.isFinal ? 1 : snapshot?.progress ?? run?.flow?.progress ?? 0;
    this.bar.style.setProperty("--progress", String(progress));
    this.bar.setAttribute("aria-valuenow", String(Math.round(progress * 100)));
    this.bar.classList.toggle("unknown", runs && snapshot === null && run.flow?.progress == null);
    this.text.textContent = run ? this.describe(run) : "";
    this.note.textContent = run && !run.isProgressive && run.why ? run.why : "";
    this.note.title = this.note.textContent;
    const spoken = run === null ? "" : run.isOver ? this.describe(run) : isPaused ? "paused" : "running";
    if (this.spoken.textContent !== spoken) this.spoken.textContent = spoken;
  }

  private describe(run: Run): string {
    const { snapshot, done } = run;
    const read = snapshot ? `${percent(snapshot.progress)} of the input, ${short(snapshot.rows_read)} rows, ${seconds(snapshot.elapsed)}` : "";
    switch (run.state) {
      case "starting": return "starting";
      case "running": return read || (run.flow?.progress ? `${percent(run.flow.progress)} of the input` : "running");
      case "paused": return `paused at ${read || "the beginning"}`;
      case "failed": return "failed";
      case "stopped": return snapshot && !snapshot.is_final ? `stopped at ${read}` : "stopped";
      case "done": return done === null ? "" : done.is_final
        ? `exact, ${snapshot && snapshot.rows_read ? `${short(snapshot.rows_read)} rows read, ` : ""}${seconds(done.ms / 1000)}`
        : `good enough at ${read}`;
    }
  }
}

function percent(part: number): string {
  return `${part > 0 && part < 0.01 ? (part * 100).toFixed(1) : Math.floor(part * 100)}%`;
}
