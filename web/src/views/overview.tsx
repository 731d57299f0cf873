import { useState } from "preact/hooks";
import { api, type GPU } from "../api";
import { ask } from "../ask";
import { clean, memory, moment, percent } from "../format";
import { useExpected } from "../expected";
import { columns, JobList, type Column } from "../list";
import { complain, counts, gpus, jobs, now, say, status } from "../store";

async function pause(gpu: GPU): Promise<void> {
  if (!gpu.paused && !(await ask(`Pause GPU ${gpu.index}? Running jobs go on; no other job starts there.`, "Pause"))) return;
  try {
    const after = await api.pause(gpu.index, !gpu.paused);
    gpus.value = gpus.value.map((other) => (other.index === after.index ? after : other));
    say(`GPU ${gpu.index} ${after.paused ? "paused" : "resumed"}`);
  } catch (problem) {
    complain(problem);
  }
}

function Card({ gpu }: { gpu: GPU }) {
  const state = gpu.paused ? "paused" : gpu.stale ? "not read" : gpu.health;
  const may = !status.value?.shared || status.value.you.admin;
  return (
    <li class="card">
      <h3>
        GPU {gpu.index} <span class={"state s-" + (state === "ok" ? "ok" : "bad")}>{state}</span>
      </h3>
      <p class="quiet">{clean(gpu.name, 80)}</p>
      <meter min={0} max={gpu.total_mib || 1} value={gpu.used_mib} aria-label={`Memory of GPU ${gpu.index}`} />
      <p>
        {memory(gpu.used_mib)} of {memory(gpu.total_mib)}, busy {percent(gpu.util)}
        {gpu.temperature_c !== null && `, ${Math.round(gpu.temperature_c)} °C`}
      </p>
      {gpu.health_reason && <p class="warn">{clean(gpu.health_reason, 300)}</p>}
      <ul class="plain">
        {(gpu.jobs ?? []).map((j) => (
          <li key={j.id}>
            <a href={"#/job/" + encodeURIComponent(j.id)}>{clean(j.id, 40)}</a> {clean(j.name, 60)} ({clean(j.user, 40)}) {memory(j.used_mib)}
          </li>
        ))}
      </ul>
      {may && <button onClick={() => void pause(gpu)}>{gpu.paused ? "Resume" : "Pause"} GPU {gpu.index}</button>}
    </li>
  );
}

export function Overview() {
  const [wanted, setWanted] = useState("");
  const [own, setOwn] = useState(false);
  const starts = new Map(useExpected().map((w) => [w.id, w.expected?.mid ?? w.expected?.low]));
  const start: Column = { title: "Expected", wide: true, size: "w-mid", cell: (j) => (j.state === "queued" ? moment(starts.get(j.id), now.value) : "") };
  const me = status.value?.you.name;
  const word = wanted.toLowerCase();
  const shown = jobs.value.filter((j) => (!own || j.user === me) && (!word || j.name.toLowerCase().includes(word) || j.id.startsWith(word) || j.user.toLowerCase().includes(word)));
  return (
    <>
      <h1>Overview</h1>
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
        </span>
      </form>
      <JobList jobs={shown} show={[columns.id, columns.name, columns.user, columns.state, columns.gpus, columns.time, start, columns.reason]} label="Jobs in the queue" />
    </>
  );
}
