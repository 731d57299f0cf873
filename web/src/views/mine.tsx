// What most people open the page for: why their jobs wait, when they will start,
// and what the last one printed.
import { useEffect, useState } from "preact/hooks";
import { lastOverwrite, spans } from "../ansi";
import { api, type Job, type Why } from "../api";
import { firstOfEach, mostOwn } from "../own";
import { between, clean, moment, whereText } from "../format";
import { State } from "../list";
import { readLines } from "../log";
import { changed, jobs, now } from "../store";
import { startText } from "../words";

const lastLines = 8;

/** The user's last job that ended, and the end of its log. */
function Last({ user }: { user: string }) {
  const [job, setJob] = useState<Job | null>(null);
  const [lines, setLines] = useState<string[]>([]);
  const ended = changed.value.ended;
  useEffect(() => {
    let stopped = false;
    const soon = setTimeout(async () => {
      try {
        const found = await api.last(user);
        const text = found && found.attempt > 0 ? await readLines(found.id, found.attempt, lastLines) : [];
        if (!stopped) [setJob(found), setLines(text)];
      } catch {
        // the log may be gone; the job's own page says so
      }
    }, job ? 1000 : 0); // the jobs of an array may end by the dozen
    return () => {
      stopped = true;
      clearTimeout(soon);
    };
  }, [user, ended]);
  if (!job) return null;
  return (
    <li class="mine">
      <p>
        <a href={"#/job/" + encodeURIComponent(job.id)}>{clean(job.id, 40)}</a> <bdi>{clean(job.name, 80)}</bdi> <State job={job} />{" "}
        {moment(job.ended_at, now.value)}{job.started_at && `, after ${between(job.started_at, job.ended_at, now.value)}`}. The last lines of its log:
      </p>
      <div class="log short" role="group" aria-label={`The last lines of the log of job ${clean(job.id, 40)}`}>
        {lines.length === 0 && <p>The log is empty.</p>}
        {lines.map((line, i) => (
          <div class="line" key={i}>
            {spans(lastOverwrite(line)).map((span, n) => <span key={n} class={span.names || undefined}>{span.text}</span>)}
          </div>
        ))}
      </div>
    </li>
  );
}

export function Mine({ user, whys }: { user: string; whys: Why[] }) {
  const own = jobs.value.filter((j) => j.user === user);
  const by = new Map(whys.map((w) => [w.id, w]));
  const shown = firstOfEach(own, mostOwn);
  const hidden = own.length - shown.reduce((sum, job) => sum + 1 + job.more, 0);
  return (
    <section aria-labelledby="mine-title">
      <h2 id="mine-title">Your jobs</h2>
      {own.length === 0 && <p>None is running or waiting. <a href="#/submit">Submit one</a>, or type <code>berth submit</code>.</p>}
      <ul class="plain">
        {shown.map((job) => {
          const why = by.get(job.id);
          return (
            <li class="mine" key={job.id}>
              <p>
                <a href={"#/job/" + encodeURIComponent(job.id)}>{clean(job.id, 40)}</a> <bdi>{clean(job.name, 80)}</bdi> <State job={job} />{" "}
                {job.state === "running" && `${whereText(job) ? `on ${whereText(job)} ` : ""}for ${between(job.started_at, null, now.value)}`}
                {job.more > 0 && <span class="quiet"> and {job.more} more like it</span>}
              </p>
              {job.state !== "running" && (
                <p>
                  {clean(why?.text ?? job.reason, 400) || "Waits to be looked at"}. {why && <strong>{startText(why, now.value)}</strong>}
                </p>
              )}
            </li>
          );
        })}
        {hidden > 0 && <li class="quiet">and {hidden} more, in the list below</li>}
        <Last user={user} />
      </ul>
    </section>
  );
}
