import { useEffect, useState } from "preact/hooks";
import { api, type Job, type Sum } from "../api";
import { columns, JobList, opened } from "../list";
import { fold } from "../rows";
import { complain } from "../store";

export function HistoryView() {
  const [user, setUser] = useState("");
  const [name, setName] = useState("");
  const [state, setState] = useState("");
  const [days, setDays] = useState("7");
  const [found, setFound] = useState<Job[]>([]);
  const [sums, setSums] = useState<Sum[]>([]);
  const [next, setNext] = useState("");
  const [total, setTotal] = useState(0);
  const load = async (after: string) => {
    const query: Record<string, string> = { since: new Date(Date.now() - Number(days) * 86_400_000).toISOString() };
    if (user) query.user = user;
    if (name) query.name = name;
    if (state) query.state = state;
    if (after) query.after = after;
    try {
      const page = await api.history(query);
      const ended = page.jobs.filter((j) => j.ended_at !== null);
      setFound(after ? found.concat(ended) : ended);
      const arrays = Object.entries(page.arrays ?? {}).map(([array, sum]) => ({ ...sum, array, user: "" }));
      setSums([...(after ? sums : []), ...arrays, ...(page.batches ?? [])]);
      setNext(page.next ?? "");
      setTotal(page.total);
    } catch (problem) {
      complain(problem);
    }
  };
  useEffect(() => void load(""), []);
  return (
    <>
      <h1>History</h1>
      <form class="row" role="search" onSubmit={(e) => { e.preventDefault(); void load(""); }}>
        <label>User <input value={user} onInput={(e) => setUser(e.currentTarget.value)} /></label>
        <label>Name <input value={name} onInput={(e) => setName(e.currentTarget.value)} /></label>
        <label>
          State{" "}
          <select value={state} onChange={(e) => setState(e.currentTarget.value)}>
            <option value="">all</option>
            <option>finished</option>
            <option>failed</option>
            <option>cancelled</option>
          </select>
        </label>
        <label>
          Last{" "}
          <select value={days} onChange={(e) => setDays(e.currentTarget.value)}>
            <option value="1">day</option>
            <option value="7">week</option>
            <option value="30">30 days</option>
            <option value="365">year</option>
          </select>
        </label>
        <button>Show</button>
        <span role="status">{found.length} of {Math.max(total, found.length)} jobs</span>
      </form>
      <JobList jobs={fold(found, sums, opened.value)} show={[columns.id, columns.name, columns.user, columns.state, columns.gpus, columns.time, columns.ended, columns.reason]} label="Jobs that ended" />
      {next && <button class="load" onClick={() => void load(next)}>Load more</button>}
    </>
  );
}
