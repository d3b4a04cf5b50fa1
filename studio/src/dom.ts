// Elements made in one call. Text goes in as text nodes only: nothing that comes from data is ever parsed as HTML.

type Child = Node | string | null | undefined | false;
type Attributes = Record<string, string | number | boolean | null | undefined | ((event: never) => void)>;

function fill(node: Element, attributes: Attributes, children: Child[]): void {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === "function") node.addEventListener(name, value as EventListener);
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  for (const child of children) if (child) node.append(child);
}

/** An HTML element. A function among the attributes is a listener for the event of that name. */
export function el<K extends keyof HTMLElementTagNameMap>(
  tag: K, attributes: Attributes = {}, ...children: Child[]
): HTMLElementTagNameMap[K] {
  const node = document.createElement(tag);
  fill(node, attributes, children);
  return node;
}

/** The same for SVG. */
export function svg<K extends keyof SVGElementTagNameMap>(
  tag: K, attributes: Attributes = {}, ...children: Child[]
): SVGElementTagNameMap[K] {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  fill(node, attributes, children);
  return node;
}

const ICONS = {
  run: "M4.5 2.8v10.4l8.5-5.2z",
  stop: "M4 4h8v8H4z",
  exact: "M3 2.8v10.4l7-5.2zM11 3h2v10h-2z",
  pause: "M4 3h3v10H4zM9 3h3v10H9z",
  pin: "M9.5 1.5l5 5-1.2 1.2-.9-.2-2.6 2.6.1 2.4-1.2 1.2-3-3L2.2 14.2l-.9.5.5-.9 3.5-3.5-3-3 1.2-1.2 2.4.1L8.500 3.600l-.2-.9z",
  close: "M3.7 2.6L8 6.900l4.300-4.300 1.100 1.100L9.100 8l4.300 4.300-1.100 1.100L8 9.100l-4.300 4.300-1.100-1.100L6.900 8 2.600 3.700z",
  menu: "M2 3.500h12v1.500H2zM2 7.250h12v1.500H2zM2 11h12v1.500H2z",
  plan: "M2 2h5v4H2zM9 10h5v4H9zM4 6h1.200v5.400H9v1.200H4z",
} as const;

export type IconName = keyof typeof ICONS;

export function icon(name: IconName): SVGSVGElement {
  return svg("svg", { class: "icon", viewBox: "0 0 16 16", "aria-hidden": "true" }, svg("path", { d: ICONS[name] }));
}

/** A button with an icon, a word or both; `label` is what a screen reader says and what the pointer shows. */
export function button(
  label: string, act: () => void, { name, text, kind = "" }: { name?: IconName; text?: string; kind?: string } = {},
): HTMLButtonElement {
  return el("button", { type: "button", class: kind || null, "aria-label": label, title: label, click: act },
    name && icon(name), text && el("span", {}, text));
}

/** A label and a choice among options. */
export function choice(
  label: string, options: readonly [value: string, text: string][], value: string, act: (value: string) => void,
): HTMLLabelElement {
  const select = el("select", { change: () => act(select.value) },
    ...options.map(([key, text]) => el("option", { value: key, selected: key === value }, text)));
  return el("label", { class: "choice" }, el("span", {}, label), select);
}

/** Calls `act` once the calls have ceased for some time. */
export function settled(ms: number, act: () => void): () => void {
  let timer = 0;
  return () => {
    clearTimeout(timer);
    timer = window.setTimeout(act, ms);
  };
}

/** Calls `act` at most once per frame. */
export function perFrame(act: () => void): () => void {
  let waits = false;
  return () => {
    if (waits) return;
    waits = true;
    requestAnimationFrame(() => {
      waits = false;
      act();
    });
  };
}

/** Drags an edge: `act` gets how far the pointer is from where it went down; the arrow keys move by 16. */
export function draggable(handle: HTMLElement, axis: "x" | "y", begin: () => (moved: number) => void): void {
  handle.tabIndex = 0;
  handle.setAttribute("role", "separator");
  handle.setAttribute("aria-orientation", axis === "x" ? "vertical" : "horizontal");
  handle.addEventListener("pointerdown", (down) => {
    down.preventDefault();
    handle.setPointerCapture(down.pointerId);
    const act = begin();
    const place = (event: PointerEvent): number => (axis === "x" ? event.clientX : event.clientY);
    const start = place(down);
    const move = (event: PointerEvent): void => act(place(event) - start);
    const end = (): void => {
      handle.removeEventListener("pointermove", move);
      handle.removeEventListener("pointerup", end);
      handle.removeEventListener("pointercancel", end);
    };
    handle.addEventListener("pointermove", move);
    handle.addEventListener("pointerup", end);
    handle.addEventListener("pointercancel", end);
  });
  handle.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -16, ArrowUp: -16, ArrowRight: 16, ArrowDown: 16 }[event.key];
    if (step === undefined) return;
    event.preventDefault();
    begin()(step);
  });
}
