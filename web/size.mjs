// Fails if the bundle is larger than a slow link to a cluster likes.
import { readdirSync, readFileSync, statSync } from "node:fs";
import { join } from "node:path";
import { gzipSync } from "node:zlib";

const most = 150_000;
const dist = new URL("../internal/web/dist", import.meta.url).pathname;
let total = 0;
for (const name of readdirSync(dist, { recursive: true })) {
  const path = join(dist, name);
  if (statSync(path).isFile()) total += gzipSync(readFileSync(path), { level: 9 }).length;
}
console.log(`${total} of ${most} bytes, compressed`);
if (total > most) process.exit(1);
