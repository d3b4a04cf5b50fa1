// The editors: SQL with completion from the server, and plan files. An error is underlined at its place.
//
// They live in a shadow root of their own: there CodeMirror makes its styles as constructed style sheets, which the page's
// Content-Security-Policy allows; in the document it would insert <style> elements, which the policy refuses.

import { autocompletion, closeBrackets, closeBracketsKeymap, closeCompletion, completionKeymap, type Completion, type CompletionSource }
  from "@codemirror/autocomplete";
import { defaultKeymap, history, historyKeymap, indentWithTab } from "@codemirror/commands";
import { SQLDialect, sql } from "@codemirror/lang-sql";
import { bracketMatching, HighlightStyle, StreamLanguage, syntaxHighlighting } from "@codemirror/language";
import { Compartment, EditorState, Prec, StateEffect, StateField, type Extension } from "@codemirror/state";
import { Decoration, drawSelection, EditorView, highlightActiveLine, keymap, lineNumbers, placeholder, type DecorationSet }
  from "@codemirror/view";
import { tags } from "@lezer/highlight";
import type { Fault } from "./messages";

const look = EditorView.theme({
  "&": { height: "100%", fontSize: "13px", color: "var(--ink)", backgroundColor: "transparent" },
  "&.cm-focused": { outline: "none" },
  ".cm-scroller": { fontFamily: "var(--mono)", lineHeight: "1.55", overflow: "auto" },
  ".cm-content": { padding: "8px 0", caretColor: "var(--ink)" },
  ".cm-cursor": { borderLeftColor: "var(--ink)" },
  ".cm-gutters": { backgroundColor: "transparent", color: "var(--faint)", border: "none", paddingLeft: "4px" },
  ".cm-activeLine": { backgroundColor: "transparent" },
  "&.cm-focused .cm-activeLine": { backgroundColor: "var(--active)" },
  "&.cm-focused > .cm-scroller > .cm-selectionLayer .cm-selectionBackground, .cm-selectionBackground": { backgroundColor: "var(--selection)" },
  "&.cm-focused .cm-matchingBracket": { backgroundColor: "var(--selection)", outline: "none" },
  ".cm-placeholder": { color: "var(--muted)" },
  ".cm-fault": { textDecoration: "underline wavy var(--error) 1px", textUnderlineOffset: "3px", textDecorationSkipInk: "none" },
  ".cm-fault-line": { backgroundColor: "var(--error-soft) !important" },
  ".cm-named-step": { backgroundColor: "var(--accent-soft) !important" },
  ".cm-tooltip": { border: "1px solid var(--line)", backgroundColor: "var(--raised)", color: "var(--ink)", borderRadius: "6px", overflow: "hidden",
    boxShadow: "0 6px 24px var(--shadow)" },
  ".cm-tooltip.cm-tooltip-autocomplete > ul": { fontFamily: "var(--mono)", maxHeight: "15em" },
  ".cm-tooltip.cm-tooltip-autocomplete > ul > li": { padding: "3px 10px", lineHeight: "1.4" },
  ".cm-tooltip.cm-tooltip-autocomplete > ul > li[aria-selected]": { backgroundColor: "var(--accent)", color: "var(--on-accent)" },
  ".cm-completionDetail": { fontStyle: "normal", color: "inherit", opacity: "0.65", marginLeft: "1.2em" },
  ".cm-completionMatchedText": { textDecoration: "none", fontWeight: "600" },
});

const colours = HighlightStyle.define([
  { tag: tags.keyword, color: "var(--code-keyword)" },
  { tag: [tags.string, tags.special(tags.string)], color: "var(--code-string)" },
  { tag: [tags.number, tags.bool, tags.null], color: "var(--code-number)" },
  { tag: [tags.comment], color: "var(--muted)", fontStyle: "italic" },
  { tag: [tags.typeName, tags.standard(tags.name)], color: "var(--code-type)" },
  { tag: [tags.propertyName], color: "var(--code-type)" },
  { tag: [tags.definition(tags.name)], color: "var(--ink)", fontWeight: "600" },
  { tag: [tags.operator, tags.punctuation], color: "var(--muted)" },
]);

const setFault = StateEffect.define<Fault | null>();
const nameLine = StateEffect.define<number | null>();

function offset(state: EditorState, line: number, column: number): number {
  const at = state.doc.line(Math.max(1, Math.min(line, state.doc.lines)));
  return Math.min(at.to, at.from + Math.max(0, column - 1));
}

function faultMarks(state: EditorState, fault: Fault | null): DecorationSet {
  if (!fault || fault.line === null) return Decoration.none;
  const title = fault.hint ? `${fault.message}\n${fault.hint}` : fault.message;
  const from = offset(state, fault.line, fault.column ?? 1);
  let to = fault.column === null ? state.doc.lineAt(from).to
    : fault.end_line !== null && fault.end_column !== null ? offset(state, fault.end_line, fault.end_column) : from;
  if (to <= from) to = Math.min(state.doc.length, from + 1);
  const start = to > from ? from : Math.max(0, to - 1); // at the very end, what stands before it
  if (start === to) return Decoration.none;
  return Decoration.set([Decoration.mark({ class: "cm-fault", attributes: { title } }).range(start, to)]);
}

const faults = StateField.define<DecorationSet>({
  create: () => Decoration.none,
  update(marks, change) {
    marks = marks.map(change.changes);
    for (const effect of change.effects) if (effect.is(setFault)) marks = faultMarks(change.state, effect.value);
    return marks;
  },
  provide: (field) => EditorView.decorations.from(field),
});

const namedLine = StateField.define<DecorationSet>({
  create: () => Decoration.none,
  update(marks, change) {
    if (change.docChanged) marks = Decoration.none;
    for (const effect of change.effects) {
      if (!effect.is(nameLine)) continue;
      marks = effect.value === null || effect.value > change.state.doc.lines ? Decoration.none
        : Decoration.set([Decoration.line({ class: "cm-named-step" }).range(change.state.doc.line(effect.value).from)]);
    }
    return marks;
  },
  provide: (field) => EditorView.decorations.from(field),
});

/** Plan files: `name = step inputs attribute=value`, comments, SQL expressions. */
const planLanguage = StreamLanguage.define<{ place: "start" | "step" | "rest" }>({
  startState: () => ({ place: "start" }),
  token(stream, state) {
    if (stream.sol()) state.place = "start";
    if (stream.eatSpace()) return null;
    if (stream.match("#")) {
      stream.skipToEnd();
      return "comment";
    }
    if (stream.match(/^'(?:[^']|'')*'?/)) return "string";
    if (stream.match(/^"(?:[^"]|"")*"?/)) return state.place === "start" ? "variableName.definition" : null;
    if (state.place === "start") {
      if (stream.match(/^(plan version|query|target|output)\b/)) {
        state.place = "rest";
        return "keyword";
      }
      if (stream.match(/^=/)) {
        state.place = "step";
        return "operator";
      }
      if (stream.match(/^\w+/)) return "variableName.definition";
    }
    if (state.place === "step" && stream.match(/^\w+/)) {
      state.place = "rest";
      return "keyword";
    }
    if (stream.match(/^\w+(?==)/)) return "propertyName";
    if (stream.match(/^\d+(\.\d+)?\b/)) return "number";
    if (stream.match(/^\w+/)) return null;
    stream.next();
    return "punctuation";
  },
});

export interface CodeOptions {
  label: string;
  language: "sql" | "plan";
  text: string;
  hint: string;
  run: () => void;
  changed: () => void;
  complete?: (text: string, position: number) => Promise<{ from: number; items: Completion[] }>;
}

export class Code {
  readonly root: HTMLElement;
  readonly view: EditorView;
  private readonly language = new Compartment();
  private isQuiet = false;

  constructor(private readonly options: CodeOptions) {
    this.root = document.createElement("div");
    this.root.className = "code";
    const shadow = this.root.attachShadow({ mode: "open", delegatesFocus: true });
    const { complete } = options;
    const source: CompletionSource | undefined = complete && (async (context) => {
      const word = context.matchBefore(/[\w"'.\/$-]+$/);
      if (!context.explicit && (!word || /^\d/.test(word.text))) return null;
      const found = await complete(context.state.doc.toString(), context.pos);
      return found.items.length === 0 || context.aborted ? null
        : { from: found.from, options: found.items, validFor: /^\w*$/ };
    });
    const extensions: Extension[] = [
      Prec.highest(keymap.of([{ key: "Mod-Enter", run: (view) => (closeCompletion(view), options.run(), true) }])),
      lineNumbers(), history(), drawSelection(), bracketMatching(), closeBrackets(), highlightActiveLine(),
      EditorView.lineWrapping, EditorState.tabSize.of(2), faults, namedLine, look, syntaxHighlighting(colours),
      placeholder(options.hint), EditorView.contentAttributes.of({ "aria-label": options.label }),
      source ? autocompletion({ override: [source], icons: false }) : [],
      // Tab indents; Escape, then Tab goes on to what follows.
      keymap.of([...closeBracketsKeymap, ...completionKeymap, ...defaultKeymap, ...historyKeymap, indentWithTab]),
      this.language.of(options.language === "plan" ? planLanguage : sql({ dialect: dialect([], []) })),
      EditorView.updateListener.of((update) => {
        if (update.docChanged && !this.isQuiet) options.changed();
      }),
    ];
    this.view = new EditorView({ state: EditorState.create({ doc: options.text, extensions }), parent: shadow, root: shadow });
    // On the host, which tests and assistive tools find without looking into the shadow root.
    this.root.dataset.language = options.language;
  }

  get text(): string {
    return this.view.state.doc.toString();
  }

  /** Another text in place of this one, as one edit that can be undone. */
  replace(text: string, { quietly = false } = {}): void {
    this.isQuiet = quietly;
    this.view.dispatch({ changes: { from: 0, to: this.view.state.doc.length, insert: text } });
    this.isQuiet = false;
  }

  insert(text: string): void {
    this.view.dispatch(this.view.state.replaceSelection(text), { userEvent: "input" });
    this.view.focus();
  }

  /** The chosen part and where it begins, if there is one. */
  get chosen(): { text: string; line: number; column: number } | null {
    const { main } = this.view.state.selection;
    if (main.empty) return null;
    const line = this.view.state.doc.lineAt(main.from);
    return { text: this.view.state.sliceDoc(main.from, main.to), line: line.number, column: main.from - line.from + 1 };
  }

  setFault(fault: Fault | null): void {
    this.view.dispatch({ effects: setFault.of(fault) });
  }

  goTo(fault: Fault): void {
    if (fault.line === null) return;
    const at = offset(this.view.state, fault.line, fault.column ?? 1);
    this.view.dispatch({ selection: { anchor: at }, scrollIntoView: true });
    this.view.focus();
  }

  /** Shows a line apart and brings it into sight. */
  nameLine(line: number | null): void {
    const { doc } = this.view.state;
    this.view.dispatch({ effects: line !== null && line <= doc.lines
      ? [nameLine.of(line), EditorView.scrollIntoView(doc.line(line).from, { y: "center" })] : [nameLine.of(null)] });
  }

  /** The words that the server knows. */
  setWords(keywords: readonly string[], functions: readonly string[]): void {
    if (this.options.language !== "sql") return;
    this.view.dispatch({ effects: this.language.reconfigure(sql({ dialect: dialect(keywords, functions) })) });
  }
}

const TYPES = "bigint blob boolean date decimal double float hugeint integer interval smallint time timestamp timestamptz "
  + "tinyint ubigint uinteger usmallint utinyint varchar";

// What every SQL has; the server's list completes it.
const KEYWORDS = "join inner left right full outer cross natural semi anti lateral over partition range rows preceding "
  + "following unbounded current row qualify window recursive similar escape only";

function dialect(keywords: readonly string[], functions: readonly string[]): SQLDialect {
  const types = new Set(TYPES.split(" "));
  return SQLDialect.define({
    keywords: [...KEYWORDS.split(" "), ...keywords.map((word) => word.toLowerCase())].filter((word) => !types.has(word)).join(" "),
    types: TYPES, builtin: functions.join(" "),
    doubleDollarQuotedStrings: false, hashComments: false, operatorChars: "*+-%<>!=&|~^/:",
  });
}
