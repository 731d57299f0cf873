import { useState } from "preact/hooks";
import { cardRefusal } from "../actions";
import { api, mostListed, type GPU } from "../api";
import { ask } from "../ask";
import { clean, memory, moment, percent } from "../format";
import { useExpected } from "../expected";
import { columns, JobList, opened, type Column } from "../list";
import { fold } from "../rows";
import { complain, counts, gpus, jobs, now, refresh, say, status, sums } from "../store";
import { Mine } from "./mine";

/** Replaces a GPU by what the daemon says of it now. */
function put(after: GPU): void {
  gpus.value = gpus.value.map((other) => (other.index === after.index ? after : other));
}

async function pause(gpu: GPU): Promise<void> {
  if (!gpu.paused && !(await ask(`Pause GPU ${gpu.index}? Running jobs go on; no other job starts there.`, "Pause"))) return;
  try {
    const after = await api.pause(gpu.index, !gpu.paused);
    put(after);
    say(`GPU ${gpu.index} ${after.paused ? "paused" : "resumed"}`);
  } catch (problem) {
    complain(problem);
  }
}

async function drain(gpu: GPU): Promise<void> {
  if (!(await ask(`Drain GPU ${gpu.index}? No other job starts there, and its jobs are parked: they resume where they were when the GPU is resumed.`, "Drain"))) return;
  try {
    const after = await api.drain(gpu.index, true);
    put(after.gpu);
    const failed = after.jobs.filter((j) => !j.done);
    say([`GPU ${gpu.index} paused`, ...after.jobs.map((j) => `job ${j.id}: ${j.what}`)].join("; "), failed.length > 0);
    refresh();
  } catch (problem) {
    complain(problem);
  }
}

/** The memory of a GPU as a bar, split by job. */
function Bar({ gpu }: { gpu: GPU }) {
  const total = gpu.total_mib || 1;
  const parts = (gpu.jobs ?? []).map((j, i) => ({ kind: "b" + (i % 4), mib: j.used_mib ?? 0 }));
  if (gpu.foreign_mib > 0) parts.push({ kind: "other", mib: gpu.foreign_mib });
  return (
    <div class="bar-of" role="img" aria-label={`${memory(gpu.used_mib)} of ${memory(gpu.total_mib)} of GPU ${gpu.index} used`}>
      {parts.map((part, i) => <span key={i} class={part.kind} style={{ width: `${Math.min(100, (100 * part.mib) / total)}%` }} />)}
    </div>
  );
}

function Card({ gpu }: { gpu: GPU }) {
  const state = gpu.paused ? "paused" : gpu.stale ? "not read" : gpu.health;
  const refused = cardRefusal(status.value);
  const facts = [`${memory(gpu.used_mib)} of ${memory(gpu.total_mib)}`, `busy ${percent(gpu.util)}`];
  if (gpu.temperature_c !== null) facts.push(`${Math.round(gpu.temperature_c)} °C`);
  if (gpu.power_w !== null) facts.push(`${Math.round(gpu.power_w)} W`);
  const all = gpu.jobs ?? [];
  return (
    <li class="card">
      <h3>
        GPU {gpu.index} <span class={"state s-" + (state === "ok" ? "ok" : "bad")}>{state}</span> <span class="quiet">{clean(gpu.name, 80)}</span>
      </h3>
      <Bar gpu={gpu} />
      <p class="quiet">{facts.join(" · ")}</p>
      {gpu.health_reason && <p class="warn">{clean(gpu.health_reason, 300)}</p>}
      <ul class="plain">
        {all.map((j, i) => (
          <li key={j.id}>
            <span class={"key b" + (i % 4)} /> <a href={"#/job/" + encodeURIComponent(j.id)}>{clean(j.id, 40)}</a> <bdi>{clean(j.name, 60)}</bdi>{" "}
            <span class="quiet">{clean(j.user, 40)}, {memory(j.used_mib)}</span>
          </li>
        ))}
        {gpu.foreign_mib > 0 && <li><span class="key other" /> <span class="quiet">external processes, {memory(gpu.foreign_mib)}</span></li>}
        {all.length === 0 && gpu.foreign_mib === 0 && <li class="quiet">{gpu.paused ? "no job starts here until it is resumed" : "free"}</li>}
      </ul>
      <details>
        <summary>Pause or drain<span class="unseen"> GPU {gpu.index}</span></summary>
        <p class="row">
          <button disabled={refused !== ""} onClick={() => void pause(gpu)}>{gpu.paused ? "Resume" : "Pause"} GPU {gpu.index}</button>
          {!gpu.paused && <button disabled={refused !== ""} onClick={() => void drain(gpu)}>Drain GPU {gpu.index}</button>}
        </p>
        {refused && <p class="quiet">{refused}</p>}
      </details>
    </li>
  );
}

export function Overview() {
  const [wanted, setWanted] = useState("");
  const [own, setOwn] = useState(false);
  const me = status.value?.you.name ?? "";
  const whys = useExpected(me);
  const starts = new Map(whys.map((w) => [w.id, w.expected?.mid ?? w.expected?.low]));
  const start: Column = { title: "Expected", wide: true, size: "w-mid", cell: (j) => (j.fold ? "" : j.state === "queued" ? moment(starts.get(j.id), now.value) : "") };
  const word = wanted.toLowerCase();
  const shown = jobs.value.filter((j) => (!own || j.user === me) && (!word || j.name.toLowerCase().includes(word) || j.id.startsWith(word) || j.user.toLowerCase().includes(word)));
  return (
    <>
      <h1>Overview</h1>
      {me && <Mine user={me} whys={whys} />}
      <h2>GPUs</h2>
      {gpus.value.length === 0 ? <p>No GPUs.</p> : <ul class="cards">{gpus.value.map((g) => <Card key={g.index} gpu={g} />)}</ul>}
      <h2>Queue</h2>
      <form class="row" role="search" onSubmit={(e) => e.preventDefault()}>
        <label>
          Filter <input type="search" value={wanted} onInput={(e) => setWanted(e.currentTarget.value)} />
        </label>
        <label>
          <input type="checkbox" checked={own} onChange={(e) => setOwn(e.currentTarget.checked)} /> Only my jobs
        </label>
        <span role="status">
          {["running", "queued", "parked"].map((s) => `${counts.value[s] ?? 0} ${s}`).join(", ")}
          {jobs.value.length >= mostListed && `; the first ${mostListed} are listed`}
        </span>
      </form>
      {jobs.value.length === 0 ? <p>No job is running or waiting.</p> : <JobList jobs={word ? shown : fold(shown, sums.value, opened.value)} show={[columns.id, columns.name, columns.user, columns.state, columns.gpus, columns.time, start, columns.reason]} label="Jobs in the queue" />}
    </>
  );
}
