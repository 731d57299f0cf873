// Opens every view of a running daemon's page in chromium, in both themes and
// two widths, and fails on what axe-core finds, on a request to another host, on
// a breach of the content security policy, and on a page wider than its window.
//
//   npm run browser -- "$(berth web --no-open)"
import { spawn } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

const address = process.argv[2];
if (!address) throw new Error("expected the address that berth web prints");
const origin = new URL(address).origin;
const home = mkdtempSync(join(tmpdir(), "berth-browser-"));
const flags = ["--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-port=0", `--user-data-dir=${home}`, "about:blank"];
const chromium = spawn(process.env.CHROMIUM ?? "chromium", flags, { stdio: ["ignore", "ignore", "pipe"] });
const port = await new Promise((found, failed) => {
  let said = "";
  chromium.stderr.on("data", (part) => {
    said += part;
    const at = /DevTools listening on ws:\/\/[^:]+:(\d+)/.exec(said);
    if (at) found(at[1]);
  });
  chromium.on("exit", () => failed(new Error("chromium ended: " + said)));
});
const tabs = await (await fetch(`http://127.0.0.1:${port}/json/list`)).json();
const socket = new WebSocket(tabs.find((tab) => tab.type === "page").webSocketDebuggerUrl);
await new Promise((open) => (socket.onopen = open));

const problems = [];
const waiting = new Map();
let calls = 0;
socket.onmessage = (message) => {
  const said = JSON.parse(message.data);
  if (said.id) return waiting.get(said.id)(said.result);
  const url = said.params?.request?.url ?? "";
  if (said.method === "Network.requestWillBeSent" && !url.startsWith(origin + "/")) problems.push(`a request to ${url}`);
  if (said.method === "Runtime.exceptionThrown") problems.push(`an exception: ${said.params.exceptionDetails.exception?.description}`);
  if (said.method === "Log.entryAdded" && said.params.entry.source === "security") problems.push(said.params.entry.text);
};
const call = (method, params = {}) =>
  new Promise((done) => {
    waiting.set(++calls, done);
    socket.send(JSON.stringify({ id: calls, method, params }));
  });
const run = async (expression) => (await call("Runtime.evaluate", { expression, awaitPromise: true, returnByValue: true })).result?.value;
const until = async (what, expression) => {
  for (let tries = 0; tries < 300; tries++) {
    if (await run(expression)) return;
    await new Promise((soon) => setTimeout(soon, 100));
  }
  throw new Error(`${what} did not happen`);
};

const axe = readFileSync(new URL("../node_modules/axe-core/axe.min.js", import.meta.url), "utf8");
for (const room of ["Page", "Runtime", "Log", "Network"]) await call(room + ".enable");
await call("Page.navigate", { url: address });
await until("the login", "!!document.querySelector('header')");
if (await run("location.hash.includes('login')")) problems.push("the login stays in the address");
if (await run("document.cookie")) problems.push("a script can read the cookie");
const job = await run(`fetch("/v1/jobs?over=true&newest=true&limit=1",{headers:{"Berth-Session":localStorage.getItem("berth-session")}}).then(r=>r.json()).then(p=>p.jobs[0]?.id)`);
const views = { "/": "Overview", "/timeline": "Timeline", "/history": "History", "/users": "Users", "/submit": "Submit" };
if (job) views["/job/" + encodeURIComponent(job)] = "Job";
for (const theme of ["light", "dark"])
  for (const width of [1280, 390]) {
    await call("Emulation.setEmulatedMedia", { features: [{ name: "prefers-color-scheme", value: theme }] });
    await call("Emulation.setDeviceMetricsOverride", { width, height: 850, deviceScaleFactor: 1, mobile: width < 700 });
    for (const [path, title] of Object.entries(views)) {
      await run(`location.hash=${JSON.stringify(path)}`);
      await until(title, `document.querySelector("h1")?.textContent.startsWith(${JSON.stringify(title)})`);
      await run(axe);
      const found = await run(`axe.run().then(r=>r.violations.map(v=>v.id+": "+v.nodes[0].html))`);
      for (const one of found ?? ["axe did not run"]) problems.push(`${title}, ${theme}, ${width}: ${one}`);
      if (await run("document.documentElement.scrollWidth > innerWidth")) problems.push(`${title}, ${width}: wider than its window`);
    }
  }
chromium.removeAllListeners("exit");
chromium.on("exit", () => {
  rmSync(home, { recursive: true, force: true, maxRetries: 20, retryDelay: 200 }); // its children may still write
  console.log(problems.length === 0 ? `${Object.keys(views).length} views, both themes, two widths: no problems` : problems.join("\n"));
  process.exit(problems.length === 0 ? 0 : 1);
});
chromium.kill();
