import { useEffect, useState } from "preact/hooks";
import { api, type Detail, type Samples, type Why } from "../api";
import { actions } from "../actions";
import { ask } from "../ask";
import { Chart } from "../chart";
import { between, clean, duration, gpuList, memory, moment, percent } from "../format";
import { State } from "../list";
import { Log } from "../log";
import { changed, complain, now, say } from "../store";

const over = (state: string) => ["finished", "failed", "cancelled"].includes(state);

function Actions({ job, reload }: { job: Detail; reload: () => void }) {
  const [priority, setPriority] = useState(String(job.priority));
  const act = async (action: string) => {
    const loses = action === "cancel" || (action === "requeue" && job.state === "running");
    if (loses && !(await ask(`${action === "cancel" ? "Cancel" : "Stop and requeue"} job ${clean(job.id, 40)}, ${clean(job.name, 80)}?`, action === "cancel" ? "Cancel it" : "Requeue it"))) return;
    try {
      const reply = await api.act(action, job.id);
      for (const one of reply.jobs) say(`job ${one.id}: ${one.what}`, !one.done);
    } catch (problem) {
      complain(problem);
    }
    reload();
  };
  const raise = async () => {
    try {
      await api.priority(job.id, Number(priority));
      say(`job ${job.id} has priority ${priority}`);
    } catch (problem) {
      complain(problem);
    }
    reload();
  };
  return (
    <div class="row">
      {actions(job).map((a) => (
        <button key={a} class={a === "cancel" ? "danger" : undefined} onClick={() => void act(a)}>
          {a[0]?.toUpperCase() + a.slice(1)}
        </button>
      ))}
      {job.state === "queued" && (
        <form class="row" onSubmit={(e) => { e.preventDefault(); void raise(); }}>
          <label>
            Priority <input type="number" class="short" value={priority} onInput={(e) => setPriority(e.currentTarget.value)} />
          </label>
          <button>Set</button>
        </form>
      )}
    </div>
  );
}

function Facts({ job }: { job: Detail }) {
  const facts: [string, string][] = [
    ["User", clean(job.user)],
    ["Command", job.command === null ? "another user's" : clean(job.command)],
    ["Directory", clean(job.dir)],
    ["Requests", `${job.gpus} GPU${job.gpus === 1 ? "" : "s"}${job.vram_mib ? `, ${memory(job.vram_mib)} each` : ""}${job.time_limit_s ? `, time limit ${duration(job.time_limit_s)}` : ""}`],
    ["GPUs", gpuList(job.gpu_ids)],
    ["Submitted", moment(job.submitted_at, now.value)],
    ["Started", moment(job.started_at, now.value)],
    ["Ended", moment(job.ended_at, now.value)],
    ["Time", job.started_at ? between(job.started_at, job.ended_at, now.value) : ""],
    ["Peak memory", job.peak_vram_mib ? Object.entries(job.peak_vram_mib).map(([g, m]) => `GPU ${g}: ${memory(m)}`).join(", ") : ""],
    ["Utilisation", job.avg_util === null ? "" : percent(job.avg_util)],
    ["Declared memory", clean(job.verdict)],
    ["Expected time", job.expected_run ? `about ${duration(job.expected_run.mid_s)}, ${duration(job.expected_run.low_s)} to ${duration(job.expected_run.high_s)}` : ""],
    ["Attempt", job.attempt > 0 ? String(job.attempt) : ""],
    ["Tasks", job.tasks ? Object.entries(job.tasks.counts).map(([s, n]) => `${n} ${s}`).join(", ") : ""],
  ];
  return (
    <dl>
      {facts.filter(([, value]) => value !== "").map(([name, value]) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  );
}

function Pairs({ title, pairs }: { title: string; pairs: Record<string, string> | undefined }) {
  const all = Object.entries(pairs ?? {});
  if (all.length === 0) return null;
  return (
    <details>
      <summary>{title} ({all.length})</summary>
      <dl>
        {all.map(([name, value]) => (
          <div key={name}>
            <dt>{clean(name, 200)}</dt>
            <dd>{clean(value)}</dd>
          </div>
        ))}
      </dl>
    </details>
  );
}

export function JobView({ id }: { id: string }) {
  const [job, setJob] = useState<Detail | null>(null);
  const [why, setWhy] = useState<Why | null>(null);
  const [samples, setSamples] = useState<Samples | null>(null);
  const [missing, setMissing] = useState("");
  const [chosen, setChosen] = useState(0); // an attempt; 0: the latest
  const load = async () => {
    try {
      const found = await api.job(id);
      setJob(found);
      setWhy(found.state === "queued" || found.state === "parked" ? await api.why(id) : null);
      if (found.attempt > 0 && found.command !== null && !found.tasks) setSamples(await api.samples(id));
    } catch (problem) {
      if (problem instanceof Error) setMissing(problem.message);
      complain(problem);
    }
  };
  const news = changed.value.id === id ? changed.value.n : 0;
  useEffect(() => void load(), [id, news]);
  const running = job?.state === "running";
  useEffect(() => {
    if (!running) return;
    const again = setInterval(() => void api.samples(id).then(setSamples, () => {}), 10_000);
    return () => clearInterval(again);
  }, [id, running]);
  if (!job) return <><h1>Job {clean(id, 40)}</h1><p role="status">{missing ? clean(missing) : "Loading…"}</p></>;
  const measured = samples?.tracks.some((t) => t.points.length > 0);
  const expected = why?.expected;
  return (
    <>
      <h1>
        Job {clean(job.id, 40)}: <bdi>{clean(job.name, 200)}</bdi> <State job={job} />
      </h1>
      <Actions job={job} reload={() => void load()} />
      {why && (
        <section class="story" aria-label="Why it waits">
          <p>{clean(why.text)}</p>
          {why.position && <p>Place {why.position} of {why.queued} in the queue.</p>}
          {expected && !expected.beyond && <p>Expected to start {expected.mid ? `at ${moment(expected.mid, now.value)}` : `not before ${moment(expected.low, now.value)}`}{expected.high ? `, at most by ${moment(expected.high, now.value)}` : ""}.</p>}
          {why.notes?.map((note) => <p key={note}>{clean(note)}</p>)}
        </section>
      )}
      {job.reason && !why && <p class="story">{clean(job.reason)}</p>}
      <Facts job={job} />
      <Pairs title="Settings" pairs={job.settings} />
      <Pairs title="Environment" pairs={job.env} />
      {measured && samples && (
        <section aria-label="Use over time">
          <Chart samples={samples} field="vram_mib" title="GPU memory" unit="MiB" />
          <Chart samples={samples} field="util" title="GPU utilisation" unit="%" most={100} />
        </section>
      )}
      {job.attempt > 1 && (
        <label>
          Attempt{" "}
          <select value={String(chosen || job.attempt)} onChange={(e) => setChosen(Number(e.currentTarget.value))}>
            {Array.from({ length: job.attempt }, (_, i) => <option key={i} value={String(i + 1)}>{i + 1}</option>)}
          </select>
        </label>
      )}
      {job.attempt > 0 && job.command !== null && !job.tasks && (
        <Log id={id} attempt={chosen || job.attempt} over={over(job.state) || (chosen > 0 && chosen < job.attempt)} />
      )}
      {job.events && job.events.length > 0 && (
        <section aria-labelledby="story-title">
          <h2 id="story-title">What happened</h2>
          <ol class="plain">
            {job.events.map((e, i) => (
              <li key={i}>
                <time dateTime={e.time}>{moment(e.time, now.value)}</time> {clean(e.event)} {clean(e.text)}
              </li>
            ))}
          </ol>
        </section>
      )}
    </>
  );
}
