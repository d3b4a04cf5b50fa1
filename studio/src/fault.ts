// An error under the text that it is about: where it is, what is wrong, what helps. A click goes to the place.

import { el } from "./dom";
import type { Fault } from "./messages";

export class FaultLine {
  readonly root = el("div", { class: "fault", role: "alert", hidden: true });

  constructor(private readonly goTo: (fault: Fault) => void) {}

  show(fault: Fault | null, { quietly = false } = {}): void {
    this.root.hidden = fault === null;
    // What is found while people type is not read out at each key.
    this.root.setAttribute("role", quietly ? "note" : "alert");
    this.root.classList.toggle("quiet-fault", quietly);
    this.root.replaceChildren();
    if (!fault) return;
    const place = fault.line === null ? null
      : el("button", { type: "button", class: "fault-place", title: "go to the place", click: () => this.goTo(fault) },
        fault.column === null ? `line ${fault.line}` : `line ${fault.line}, column ${fault.column}`);
    if (place) this.root.append(place);
    this.root.append(el("span", { class: "fault-message" }, fault.message));
    if (fault.hint) this.root.append(el("span", { class: "fault-hint" }, fault.hint));
  }
}
