// What page and server say to each other, as docs/design/studio.md has it.

export interface ColumnInfo {
  name: string;
  type: string;
}

export interface TableInfo {
  name: string;
  kind: string;
  rows: number | null;
  columns: ColumnInfo[];
}

export interface HistoryEntry {
  sql: string;
  at: string | number;
  ms: number | null;
  rows: number | null;
  error: string | null;
}

export interface JobInfo {
  name: string;
  seconds: number;
  rows_in: number;
  rate_in: number;
  rows_out: number;
  late: number;
  held_rows: number;
  held_bytes: number;
  streams: { name: string; watermark: string; behind: number | null }[];
}

export interface Hello {
  type: "hello";
  version: string;
  read_only: boolean;
  database: string | null;
  tables: TableInfo[];
  functions: { name: string; kind: string }[];
  keywords: string[];
  history: HistoryEntry[];
}

/** An error with its place in the text, from 1; null where there is none. */
export interface Fault {
  message: string;
  hint: string | null;
  line: number | null;
  column: number | null;
  end_line: number | null;
  end_column: number | null;
  /** If statements before the one that failed have changed them. */
  tables?: TableInfo[];
}

export interface CompletionItem {
  text: string;
  kind: string;
  about: string | null;
}

export interface Completions {
  type: "completions";
  start: number;
  items: CompletionItem[];
}

export interface PlanStep {
  name: string;
  op: string;
  text: string;
  inputs: string[];
  rows: number | null;
  shards: number | null;
  scope: string | null;
  is_movement: boolean;
  line: number | null;
}

export interface PlanAnswer {
  type: "plan";
  file: string | null;
  steps: PlanStep[];
  notes: string[];
  error: Fault | null;
}

export interface Started {
  type: "started";
  columns: ColumnInfo[];
  is_progressive: boolean;
  why: string | null;
}

export interface SnapshotInfo {
  type: "snapshot";
  progress: number;
  rows_read: number;
  elapsed: number;
  is_final: boolean;
  rows: number;
  bounds: string[];
  number: number;
}

export interface Flow {
  type: "flow";
  steps: Record<string, number>;
  progress: number | null;
}

export interface Done {
  type: "done";
  ms: number;
  rows: number | null;
  is_final: boolean;
  stopped: boolean;
  message: string | null;
  notes: string[];
  tables: TableInfo[] | null;
}

export type RunAnswer = Started | SnapshotInfo | Flow | Done | (Fault & { type: "error" });

/** Rows of a table with the column are kept if its value is in the range or among the values. */
export type Filter =
  | { column: string; low: number | string; high: number | string }
  | { column: string; values: (number | string | boolean | null)[] };
