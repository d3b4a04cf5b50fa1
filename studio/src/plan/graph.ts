// The plan as a graph: a box per step, movement drawn apart, and the rows that flow while the query runs.

import { graphlib, layout } from "@dagrejs/dagre";
import { el, svg } from "../dom";
import type { Flow, PlanStep } from "../messages";
import { short } from "../values";

interface Box {
  group: SVGGElement;
  rows: SVGTextElement;
}

const LETTER = 6.3;
const MOVEMENT: Record<string, string> = {
  redistribute: "by key", reshard: "evenly", arrange: "by ranges", broadcast: "to all", multicast: "to chosen", gather: "to one",
};

export class PlanGraph {
  readonly root = el("div", { class: "plan-graph", tabindex: 0, role: "group", "aria-label": "the plan as a graph" });
  onChoose: ((step: PlanStep | null) => void) | null = null;
  private boxes = new Map<string, Box>();
  private edges: { path: SVGPathElement; from: string }[] = [];
  private steps: PlanStep[] = [];
  private chosen: string | null = null;
  private last: Record<string, number> = {};
  private size = { width: 0, height: 0 };
  private picture: SVGSVGElement | null = null;
  private zoom: number | null = null;

  constructor() {
    this.root.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && !event.metaKey) return;
      event.preventDefault();
      this.setZoom((this.zoom ?? this.fitting()) * (event.deltaY > 0 ? 0.9 : 1.1));
    }, { passive: false });
    this.root.addEventListener("keydown", (event) => this.key(event));
    this.root.addEventListener("click", (event) => {
      if (event.target === this.root || event.target === this.picture) this.choose(null);
    });
    new ResizeObserver(() => this.resize()).observe(this.root);
  }

  show(steps: readonly PlanStep[]): void {
    const isSame = JSON.stringify(steps) === JSON.stringify(this.steps);
    if (isSame && this.picture) return;
    this.steps = [...steps];
    this.boxes.clear();
    this.edges = [];
    this.last = {};
    this.zoom = null;
    this.choose(null);
    if (steps.length === 0) {
      this.picture = null;
      this.root.replaceChildren();
      return;
    }
    this.draw();
  }

  private draw(): void {
    const graph = new graphlib.Graph({ multigraph: true });
    graph.setGraph({ rankdir: "TB", nodesep: 22, ranksep: 34, marginx: 10, marginy: 10 });
    graph.setDefaultEdgeLabel(() => ({}));
    const known = new Set(this.steps.map(({ name }) => name));
    for (const step of this.steps) {
      const letters = Math.max(step.name.length + (detail(step) ? detail(step).length + 3 : 0), title(step).length + 8);
      graph.setNode(step.name, { width: Math.min(letters * LETTER + 26, 250), height: 42 });
    }
    for (const step of this.steps) {
      step.inputs.forEach((input, place) => {
        const from = this.steps.find(({ name }) => name === input);
        if (!known.has(input) || !from) return;
        const label = estimate(from);
        graph.setEdge(input, step.name, { width: label.length * 6 + 8, height: 12, labelpos: "r", label }, String(place));
      });
    }
    layout(graph);
    const { width = 0, height = 0 } = graph.graph();
    this.size = { width, height };
    const edges = graph.edges().flatMap((edge) => {
      const { points, x, y, label } = graph.edge(edge) as { points: { x: number; y: number }[]; x?: number; y?: number; label?: string };
      const path = svg("path", { class: "plan-edge", d: smooth(points), "marker-end": "url(#plan-arrow)" });
      this.edges.push({ path, from: edge.v });
      return [path, x !== undefined && y !== undefined && label
        ? svg("text", { class: "plan-rows", x, y: y + 4, "text-anchor": "middle" }, label) : null];
    }).filter((node) => node !== null);
    const boxes = this.steps.map((step) => this.box(step, graph.node(step.name)));
    this.picture = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": this.describe() },
      svg("defs", {}, svg("marker", {
        id: "plan-arrow", viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 7, markerHeight: 7, orient: "auto-start-reverse",
      }, svg("path", { class: "plan-arrow", d: "M0 0.500L8 4L0 7.500z" }))),
      ...edges, ...boxes);
    this.root.replaceChildren(this.picture);
    this.resize();
  }

  private box(step: PlanStep, { x, y, width, height }: { x: number; y: number; width: number; height: number }): SVGGElement {
    const rows = svg("text", { class: "plan-flow", x: width / 2 - 9, y: -height / 2 + 16, "text-anchor": "end" });
    const room = Math.floor((width - 18) / LETTER);
    const shape = step.is_movement
      ? svg("path", { class: "plan-shape", d: hexagon(width, height) })
      : svg("rect", { class: "plan-shape", x: -width / 2, y: -height / 2, width, height, rx: 5 });
    const group = svg("g", {
      class: `plan-step${step.is_movement ? ` movement ${step.scope === "global" ? "global" : "local"}` : ""}`,
      transform: `translate(${x} ${y})`, "data-step": step.name, "data-op": step.op,
      click: () => this.choose(step.name),
    },
    svg("title", {}, step.text), shape,
    svg("text", { class: "plan-op", x: -width / 2 + (step.is_movement ? 13 : 9), y: -height / 2 + 16 }, clip(title(step), room)),
    svg("text", { class: "plan-name", x: -width / 2 + (step.is_movement ? 13 : 9), y: -height / 2 + 32 },
      clip(`${step.name}${detail(step) ? ` · ${detail(step)}` : ""}`, room)),
    rows);
    this.boxes.set(step.name, { group, rows });
    return group;
  }

  private describe(): string {
    return `plan of ${this.steps.length} steps: ${this.steps.map((step) => `${step.name} ${step.op}`).join(", ")}`;
  }

  // --- while it runs

  showFlow(flow: Flow | null, isRunning: boolean): void {
    const now = flow?.steps ?? {};
    // Steps in the middle of a pipeline are not counted: they are at work while what they read is.
    const active = new Map<string, boolean>();
    const passed = new Map<string, boolean>();
    for (const { name, inputs } of this.steps) {
      const rows = now[name];
      const counted = rows !== undefined;
      passed.set(name, counted ? rows > 0 : inputs.some((input) => passed.get(input)));
      active.set(name, isRunning && (counted ? rows > (this.last[name] ?? 0) : inputs.some((input) => active.get(input))));
      const box = this.boxes.get(name);
      if (!box) continue;
      box.rows.textContent = counted ? short(rows) : "";
      box.group.classList.toggle("active", active.get(name)!);
      if (counted) box.group.dataset.rows = String(rows);
    }
    for (const { path, from } of this.edges) {
      path.classList.toggle("flowing", active.get(from) ?? false);
      path.classList.toggle("passed", passed.get(from) ?? false);
    }
    this.last = { ...now };
  }

  // --- looking at it

  choose(name: string | null): void {
    if (name === this.chosen && name !== null) name = null;
    this.chosen = name;
    for (const [key, { group }] of this.boxes) group.classList.toggle("chosen", key === name);
    this.onChoose?.(this.steps.find((step) => step.name === name) ?? null);
  }

  private key(event: KeyboardEvent): void {
    if (event.key === "+" || event.key === "-") {
      this.setZoom((this.zoom ?? this.fitting()) * (event.key === "+" ? 1.2 : 1 / 1.2));
    } else if (event.key === "0") {
      this.zoom = null;
      this.resize();
    } else if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      const at = this.steps.findIndex(({ name }) => name === this.chosen);
      const next = this.steps[Math.max(0, Math.min(this.steps.length - 1, at + (event.key === "ArrowDown" ? 1 : -1)))];
      if (!next || next.name === this.chosen) return;
      this.choose(next.name);
      this.boxes.get(next.name)?.group.scrollIntoView({ block: "nearest", inline: "nearest" });
    } else if (event.key === "Escape") this.choose(null);
    else return;
    event.preventDefault();
  }

  setZoom(zoom: number): void {
    this.zoom = Math.max(0.2, Math.min(2.5, zoom));
    this.resize();
  }

  zoomBy(factor: number | null): void {
    if (factor === null) {
      this.zoom = null;
      this.resize();
    } else this.setZoom((this.zoom ?? this.fitting()) * factor);
  }

  private fitting(): number {
    const wide = (this.root.clientWidth - 4) / Math.max(1, this.size.width);
    const high = (this.root.clientHeight - 4) / Math.max(1, this.size.height);
    // A tall plan scrolls rather than become too small to read.
    return Math.min(wide, Math.max(high, 0.75), 1.1);
  }

  private resize(): void {
    if (!this.picture || this.root.clientWidth < 20 || this.root.clientHeight < 20) return; // out of sight
    const zoom = this.zoom ?? this.fitting();
    this.picture.setAttribute("width", String(Math.round(this.size.width * zoom)));
    this.picture.setAttribute("height", String(Math.round(this.size.height * zoom)));
  }
}

function title(step: PlanStep): string {
  return step.is_movement && MOVEMENT[step.op] ? `${step.op} ${MOVEMENT[step.op]}` : step.op.replaceAll("_", " ");
}

/** What stands behind the name of a step: for movement its scope, and how many shards there are. */
function detail(step: PlanStep): string {
  const parts: string[] = [];
  if (step.is_movement && step.scope) parts.push(step.scope);
  if (step.shards !== null && step.shards !== undefined) parts.push(`${step.shards} shard${step.shards === 1 ? "" : "s"}`);
  return parts.join(" · ");
}

function estimate(step: PlanStep): string {
  return step.rows === null || step.rows === undefined ? "" : `≈ ${short(Math.round(step.rows))}`;
}

function clip(text: string, letters: number): string {
  return text.length > letters ? `${text.slice(0, Math.max(1, letters - 1))}…` : text;
}

function hexagon(width: number, height: number): string {
  const [w, h, cut] = [width / 2, height / 2, 9];
  return `M${-w + cut} ${-h}H${w - cut}L${w} 0L${w - cut} ${h}H${-w + cut}L${-w} 0Z`;
}

/** A line through the points of an edge, rounded at its bends. */
function smooth(points: readonly { x: number; y: number }[]): string {
  let path = `M${points[0].x} ${points[0].y}`;
  for (let i = 1; i < points.length - 1; i++) {
    const [at, next] = [points[i], points[i + 1]];
    path += `Q${at.x} ${at.y} ${(at.x + next.x) / 2} ${(at.y + next.y) / 2}`;
  }
  const end = points[points.length - 1];
  return `${path}L${end.x} ${end.y}`;
}
