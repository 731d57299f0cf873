import { useEffect, useState } from "preact/hooks";
import { api, type Replay } from "../api";
import { clean, memory } from "../format";
import { complain } from "../store";

const most = 4;

export function WhatIf() {
  const [days, setDays] = useState("30");
  const [chosen, setChosen] = useState<string[]>(["default", "backfill"]);
  const [found, setFound] = useState<Replay | null>(null);
  const [busy, setBusy] = useState<AbortController | null>(null);
  const replay = async () => {
    const stop = new AbortController();
    setBusy(stop);
    try {
      setFound(await api.replay(chosen, new Date(Date.now() - Number(days) * 86_400_000).toISOString(), stop.signal));
    } catch (problem) {
      complain(problem);
    }
    setBusy((now) => (now === stop ? null : now));
    return stop;
  };
  useEffect(() => void replay(), []);
  useEffect(() => () => busy?.abort(), [busy]); // nobody waits for it any more
  const known = found?.known ?? [];
  const toggle = (name: string) => setChosen(chosen.includes(name) ? chosen.filter((other) => other !== name) : [...chosen, name]);
  return (
    <>
      <h1>What if?</h1>
      <p>
        Replays the jobs that ended lately, as if another policy had been in force. No job runs. In a terminal,{" "}
        <code>berth simulate --history</code> has more choices.
      </p>
      <form onSubmit={(e) => { e.preventDefault(); void replay(); }}>
        <fieldset>
          <legend>Policies, {most} at most</legend>
          {known.map((p) => (
            <label class="choice" key={p.name}>
              <input type="checkbox" checked={chosen.includes(p.name)} disabled={!chosen.includes(p.name) && chosen.length >= most} onChange={() => toggle(p.name)} />
              <span><strong>{clean(p.name, 40)}</strong> <span class="quiet">{clean(p.about, 300)}</span></span>
            </label>
          ))}
        </fieldset>
        <div class="row">
          <label>
            Jobs of the last{" "}
            <select value={days} onChange={(e) => setDays(e.currentTarget.value)}>
              <option value="1">day</option>
              <option value="7">week</option>
              <option value="30">30 days</option>
            </select>
          </label>
          {busy ? <button type="button" onClick={() => busy.abort()}>Stop</button> : <button class="main" disabled={chosen.length === 0}>Replay</button>}
        </div>
      </form>
      <div role="status">
        {busy && <p>Replaying…</p>}
        {!busy && found && found.jobs === 0 && <p class="story">No job with a GPU ended in that time.</p>}
        {!busy && found && found.jobs > 0 && (
          <p>
            {found.jobs} job{found.jobs === 1 ? "" : "s"} of {found.users} user{found.users === 1 ? "" : "s"} on {found.gpus} GPUs of {memory(found.vram_mib)}. The best figure of a row is marked ★.
          </p>
        )}
      </div>
      {found && found.jobs > 0 && (
        <div class="scroll" tabIndex={0} role="region" aria-label="Figures under each policy">
          <table class="figures">
            <thead>
              <tr>
                <th scope="col">Figure</th>
                {found.policies.map((p) => <th scope="col" key={p.name}>{clean(p.name, 40)}</th>)}
                <th scope="col">Lower bound</th>
              </tr>
            </thead>
            <tbody>
              {found.figures.map((f) => (
                <tr key={f.name}>
                  <th scope="row">{clean(f.title, 80)}</th>
                  {f.values.map((v, i) => <td key={i} class={v.best ? "best" : undefined}>{clean(v.text, 40)}{v.best && <span role="img" aria-label="best"> ★</span>}</td>)}
                  <td>{clean(f.bound, 40)}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
      {found?.notes.map((note) => <p class="quiet" key={note}>{clean(note, 400)}</p>)}
    </>
  );
}
