// The tables with their columns, the live queries that run, and the history of queries. A click inserts a name, or puts a
// query back.

import { el } from "./dom";
import type { HistoryEntry, JobInfo, TableInfo } from "./messages";
import { count, seconds, short } from "./values";

/** A name as SQL has it: in quotes if it is not plain. */
export function quoted(name: string): string {
  return /^[a-z_][a-z0-9_]*$/i.test(name) ? name : `"${name.replaceAll('"', '""')}"`;
}

export class Sidebar {
  readonly root: HTMLElement;
  onInsert: ((text: string) => void) | null = null;
  onPutBack: ((sql: string) => void) | null = null;
  private readonly tables = el("div", { class: "tables" });
  private readonly filter = el("input", { type: "search", placeholder: "Find a table or column", "aria-label": "find a table or column", input: () => this.find() });
  private readonly past = el("ol", { class: "history" });
  private readonly running = el("ol", { class: "history" });
  private readonly jobs = el("section", { class: "jobs", "aria-label": "live queries" }, el("div", { class: "bar" }, el("h2", {}, "Live queries")), this.running);
  private open = new Set<string>();
  private known: readonly TableInfo[] = [];

  constructor() {
    this.jobs.hidden = true;
    this.root = el("nav", { class: "sidebar", "aria-label": "tables and history" },
      el("section", { class: "catalog", "aria-label": "tables" }, el("div", { class: "bar" }, el("h2", {}, "Tables")), this.filter, this.tables),
      this.jobs,
      el("section", { class: "past", "aria-label": "history" }, el("div", { class: "bar" }, el("h2", {}, "History")), this.past));
  }

  showTables(tables: readonly TableInfo[]): void {
    if (this.known.length === 0 && tables.length > 0 && tables.length <= 2) for (const { name } of tables) this.open.add(name);
    this.known = tables;
    this.filter.hidden = tables.length + tables.reduce((sum, { columns }) => sum + columns.length, 0) < 12;
    this.find();
  }

  private find(): void {
    const word = this.filter.value.trim().toLowerCase();
    const found = this.known.flatMap((table) => {
      if (!word) return [this.table(table, table.columns, this.open.has(table.name))];
      const columns = table.columns.filter(({ name }) => name.toLowerCase().includes(word));
      if (table.name.toLowerCase().includes(word)) return [this.table(table, table.columns, this.open.has(table.name))];
      return columns.length ? [this.table(table, columns, true)] : [];
    });
    this.tables.replaceChildren(...(found.length ? found : [el("p", { class: "empty" }, word ? "Nothing has this name." : "No tables yet.")]));
  }

  private table(table: TableInfo, columns: TableInfo["columns"], isOpen: boolean): HTMLElement {
    const details = el("details", { open: isOpen, class: "table", toggle: () => {
      if (details.open) this.open.add(table.name);
      else this.open.delete(table.name);
    } },
    el("summary", { title: `${table.kind} ${table.name}${table.rows === null ? "" : `, ${count(table.rows)} rows`}` },
      el("button", { type: "button", class: "name", "aria-label": `insert ${table.name}`, click: (event: Event) => {
        event.preventDefault();
        this.onInsert?.(quoted(table.name));
      } }, table.name),
      el("span", { class: "about" }, table.rows === null ? table.kind : short(table.rows))),
    el("ul", {}, ...columns.map(({ name, type }) => el("li", {},
      el("button", { type: "button", class: "name", "aria-label": `insert ${name}, ${type}`, click: () => this.onInsert?.(quoted(name)) }, name),
      el("span", { class: "about" }, type.toLowerCase())))));
    return details;
  }

  /** The live queries of this user; the section is there while one runs. */
  showJobs(jobs: readonly JobInfo[]): void {
    this.jobs.hidden = jobs.length === 0;
    this.running.replaceChildren(...jobs.map((job) => {
      const about = [`${short(Math.round(job.rate_in))}/s in`, `${short(job.rows_out)} out`, `holds ${short(job.held_rows)}`];
      if (job.late > 0) about.push(`${short(job.late)} late`);
      const streams = job.streams.map(({ name, watermark, behind }) => `${name}: watermark ${watermark}${behind ? `, ${count(behind)} behind` : ""}`);
      return el("li", { class: "job", title: streams.join("\n") },
        el("code", {}, job.name), el("span", { class: "about" }, about.join(", ")),
        ...job.streams.map(({ name, watermark }) => el("span", { class: "about" }, `${name} ${watermark}`)));
    }));
  }

  showHistory(entries: readonly HistoryEntry[]): void {
    // Panels run their queries again with each brush: of equal queries the newest stands here.
    const seen = new Set<string>();
    const items = entries.filter(({ sql }) => !seen.has(sql) && seen.add(sql)).map((entry) => {
      const about = entry.error !== null ? "failed" : [
        entry.rows === null ? null : `${count(entry.rows)} row${entry.rows === 1 ? "" : "s"}`,
        entry.ms === null ? null : seconds(entry.ms / 1000),
      ].filter(Boolean).join(", ");
      return el("li", {}, el("button", {
        type: "button", class: `entry${entry.error !== null ? " failed" : ""}`, title: entry.error !== null ? `${entry.error}\n\n${entry.sql}` : entry.sql,
        click: () => this.onPutBack?.(entry.sql),
      }, el("code", {}, entry.sql.replace(/\s+/g, " ").slice(0, 200)), el("span", { class: "about" }, about)));
    });
    this.past.replaceChildren(...(items.length ? items : [el("li", { class: "empty" }, "Queries that you run stand here.")]));
  }
}
