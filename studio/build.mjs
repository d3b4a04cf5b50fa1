// Builds the page into tsql/studio/page/: index.html, assets/ and widget.js, each minified. `make studio` calls it.

import { build } from "esbuild";
import { createHash } from "node:crypto";
import { copyFile, mkdir, readdir, readFile, rm, stat, writeFile } from "node:fs/promises";
import { dirname, join, relative } from "node:path";
import { fileURLToPath } from "node:url";

const here = dirname(fileURLToPath(import.meta.url));
const source = join(here, "src");
const page = join(here, "..", "tsql", "studio", "page");
const LIMIT = 700_000;

const common = {
  bundle: true, minify: true, format: "esm", target: ["es2022", "chrome111", "firefox113", "safari16.4"],
  legalComments: "none", charset: "utf8", logLevel: "warning",
};

await rm(page, { recursive: true, force: true });
await mkdir(join(page, "assets"), { recursive: true });
await build({ ...common, entryPoints: [join(source, "main.ts")], outfile: join(page, "assets", "studio.js") });
await build({ ...common, entryPoints: [join(source, "style", "studio.css")], outfile: join(page, "assets", "studio.css") });
await build({ ...common, entryPoints: [join(source, "widget.ts")], outfile: join(page, "widget.js"), loader: { ".css": "text" } });

// The page says what it was built from, so that a test can tell whether it is that of the source beside it.
const read = (await readdir(source, { recursive: true, withFileTypes: true }))
  .filter((entry) => entry.isFile()).map((entry) => join(entry.parentPath, entry.name))
  .concat(join(here, "package-lock.json"), join(here, "build.mjs"));
const named = read.map((path) => relative(here, path).replaceAll("\\", "/")).sort();
const hash = createHash("sha256");
for (const name of named) hash.update(`${name}\n`).update(await readFile(join(here, name)));
const html = await readFile(join(source, "index.html"), "utf8");
await writeFile(join(page, "index.html"), html.replace("SOURCE", hash.digest("hex")));
await copyFile(join(source, "icon.svg"), join(page, "assets", "icon.svg"));

let total = 0;
for (const entry of await readdir(page, { recursive: true, withFileTypes: true })) {
  if (!entry.isFile()) continue;
  const { size } = await stat(join(entry.parentPath, entry.name));
  total += size;
  console.log(`${String(size).padStart(8)}  ${entry.name}`);
}
console.log(`${String(total).padStart(8)}  in all`);
if (total >= LIMIT) throw new Error(`the page has ${total} bytes; it may have ${LIMIT}`);
