import { useEffect, useRef, useState } from "preact/hooks";
import { api, type Detail, type Samples, type Why } from "../api";
import { actions, refusal } from "../actions";
import { ask, askTime } from "../ask";
import { Chart } from "../chart";
import { copy } from "../copy";
import { between, clean, duration, gpuList, memory, moment, percent, whereText } from "../format";
import { State } from "../list";
import { Log } from "../log";
import { changed, changes, complain, now, say, status } from "../store";
import { Trials } from "./trials";
import { eventText, requestText, startText, verdictText } from "../words";

const over = (state: string) => ["finished", "failed", "cancelled"].includes(state);

function Actions({ job, reload }: { job: Detail; reload: () => void }) {
  const [priority, setPriority] = useState(String(job.priority));
  const refused = refusal(job, status.value);
  const called = `job ${clean(job.id, 40)}, ${clean(job.name, 80)}`;
  // Asks where work would be lost, and until when to park; null: do nothing.
  const agree = async (action: string): Promise<string | null> => {
    if (action === "cancel") return (await ask(`Cancel ${called}?`, "Cancel it")) ? "" : null;
    if (action === "requeue" && job.state === "running") return (await ask(`Stop ${called} and run it again from the beginning?`, "Requeue it")) ? "" : null;
    if (action === "park") return askTime(`Park ${called}? Its GPU memory moves to host memory, and it resumes where it was.`, "Park it", "Until (empty: until it is unparked)");
    return "";
  };
  const act = async (action: string) => {
    const until = await agree(action);
    if (until === null) return;
    try {
      const reply = await api.act(action, job.id, until ? new Date(until).toISOString() : undefined);
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
    <>
      <div class="row">
        {actions(job).map((a) => (
          <button key={a} class={a === "cancel" ? "danger" : undefined} disabled={refused !== ""} onClick={() => void act(a)}>
            {a[0]?.toUpperCase() + a.slice(1)}
          </button>
        ))}
        {job.state === "queued" && (
          <form class="row" onSubmit={(e) => { e.preventDefault(); void raise(); }}>
            <label>
              Priority <input type="number" class="short" disabled={refused !== ""} value={priority} onInput={(e) => setPriority(e.currentTarget.value)} />
            </label>
            <button disabled={refused !== ""}>Set</button>
          </form>
        )}
        <button onClick={() => void copy(job.id)}>Copy id</button>
      </div>
      {refused && <p class="quiet">{refused}</p>}
    </>
  );
}

/** Why a job waits, when it is expected to start, and what each GPU lacks. */
function Waits({ why }: { why: Why }) {
  const start = startText(why, now.value);
  const cards = (why.gpus ?? []).filter((g) => g.what);
  return (
    <section class="story" aria-label="Why it waits">
      <p>Why it waits: {clean(why.text)}.</p>
      {start && <p><strong>{start}</strong></p>}
      {why.notes?.map((note) => <p key={note}>{clean(note)}</p>)}
      {cards.length > 0 && (
        <details>
          <summary>GPU by GPU</summary>
          <ul class="plain">
            {cards.map((g) => (
              <li key={g.gpu}>
                GPU {g.gpu}: {clean(g.what, 300)}
                {g.runs?.map((r) => (
                  <span key={r.id}>
                    {" "}(<a href={"#/job/" + encodeURIComponent(r.id)}>job {clean(r.id, 40)}</a> of {clean(r.user, 40)}{r.mid && `, until about ${moment(r.mid, now.value)}`})
                  </span>
                ))}
              </li>
            ))}
          </ul>
        </details>
      )}
    </section>
  );
}

function Facts({ job }: { job: Detail }) {
  const facts: [string, string][] = [
    ["User", clean(job.user)],
    ["Command", job.command === null ? "another user's" : clean(job.command)],
    ["Directory", clean(job.dir)],
    ["Requests", requestText(job)],
    ["GPUs", job.slurm ? "" : gpuList(job.gpu_ids)],
    ["Slurm", job.slurm ? [clean(job.slurm.id, 60) && `job ${clean(job.slurm.id, 60)}`, whereText(job) && `on ${whereText(job)}`].filter(Boolean).join(" ") || "to be handed over" : ""],
    ["Submitted", moment(job.submitted_at, now.value)],
    ["Started", moment(job.started_at, now.value)],
    ["Ended", moment(job.ended_at, now.value)],
    ["Time", job.started_at ? between(job.started_at, job.ended_at, now.value) : ""],
    ["Peak memory", job.peak_vram_mib ? Object.entries(job.peak_vram_mib).map(([g, m]) => `GPU ${g}: ${memory(m)}`).join(", ") : ""],
    ["Utilisation", job.avg_util === null ? "" : percent(job.avg_util)],
    ["Memory use", verdictText(job.verdict)],
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
  const loads = useRef({ n: 0, at: 0 });
  const load = async () => {
    const n = ++loads.current.n;
    loads.current.at = Date.now();
    try {
      const found = await api.job(id);
      const reason = found.state === "queued" || found.state === "parked" ? await api.why(id) : null;
      if (n !== loads.current.n) return; // a later one knows more
      setJob(found);
      setWhy(reason);
      if (found.attempt > 0 && found.command !== null && !found.tasks) setSamples(await api.samples(id));
    } catch (problem) {
      if (problem instanceof Error) setMissing(problem.message);
      complain(problem);
    }
  };
  const news = `${changed.value.opened} ${changes.of(id)}`;
  useEffect(() => {
    // The tasks of an array may end by the dozen.
    const soon = setTimeout(() => void load(), Math.max(0, loads.current.at + 500 - Date.now()));
    return () => clearTimeout(soon);
  }, [id, news]);
  const running = job?.state === "running";
  useEffect(() => {
    if (!running) return;
    const again = setInterval(() => void api.samples(id).then(setSamples, () => {}), 10_000);
    return () => clearInterval(again);
  }, [id, running]);
  if (!job) return <><h1>Job {clean(id, 40)}</h1><p role="status">{missing ? clean(missing) : "Loading…"}</p></>;
  const measured = samples?.tracks.some((t) => t.points.length > 0);
  const ran = job.attempt > 0 && !job.tasks;
  return (
    <>
      <h1>
        Job {clean(job.id, 40)}: <bdi>{clean((job.tasks && job.sweep) ?? job.name, 200)}</bdi> <State job={job} />
      </h1>
      <Actions job={job} reload={() => void load()} />
      {why && <Waits why={why} />}
      {job.reason && !why && <p class="story">{clean(job.reason)}</p>}
      {job.tasks && job.command !== null && <Trials id={id} news={news} logs={refusal(job, status.value) === ""} />}
      <div class={ran ? "job" : undefined}>
        <div>
          {job.attempt > 1 && (
            <label>
              Attempt{" "}
              <select value={String(chosen || job.attempt)} onChange={(e) => setChosen(Number(e.currentTarget.value))}>
                {Array.from({ length: job.attempt }, (_, i) => <option key={i} value={String(i + 1)}>{i + 1}</option>)}
              </select>
            </label>
          )}
          {ran && job.command !== null && <Log id={id} attempt={chosen || job.attempt} over={over(job.state) || (chosen > 0 && chosen < job.attempt)} />}
          {ran && job.command === null && <p class="quiet">Only its user and administrators can read its log.</p>}
          {measured && samples && (
            <section aria-label="Use over time">
              <Chart samples={samples} field="vram_mib" title="GPU memory" />
              <Chart samples={samples} field="util" title="GPU utilisation" most={100} />
            </section>
          )}
        </div>
        <div>
          <Facts job={job} />
          <Pairs title="Settings" pairs={job.settings} />
          <Pairs title="Environment" pairs={job.env} />
          {job.events && job.events.length > 0 && (
            <section aria-labelledby="story-title">
              <h2 id="story-title">What happened</h2>
              <ol class="plain">
                {job.events.map((e, i) => (
                  <li key={i}>
                    <time dateTime={e.time}>{moment(e.time, now.value)}</time> {eventText(e)}
                  </li>
                ))}
              </ol>
            </section>
          )}
        </div>
      </div>
    </>
  );
}
