import { useState } from "preact/hooks";
import { api, type Submitted } from "../api";
import { clean } from "../format";
import { complain, message, say } from "../store";
import { wouldText } from "../words";

// The keys of a job, as in a jobs file, with an example of each.
const fields = [
  ["name", "Name", "train"],
  ["dir", "Directory", "your home directory"],
  ["gpus", "GPUs", "1"],
  ["vram", "Memory on each GPU", "18G"],
  ["timeout", "Time limit", "none; 2h"],
  ["priority", "Priority", "0"],
  ["venv", "Virtual environment", ".venv"],
  ["after", "After job", "17"],
] as const;

export function Submit() {
  const [spec, setSpec] = useState<Record<string, string>>({});
  const [would, setWould] = useState<Submitted | null>(null);
  const set = (key: string, value: string) => {
    setSpec({ ...spec, [key]: value });
    setWould(null);
  };
  const send = async (dryRun: boolean) => {
    const given = Object.fromEntries(Object.entries(spec).filter(([, value]) => value.trim() !== ""));
    try {
      const reply = await api.submit(given, dryRun);
      message.value = null; // it was about the try before
      if (dryRun) return setWould(reply);
      const id = reply.jobs[0]?.id ?? "";
      say(`submitted job ${id}`);
      location.hash = "/job/" + encodeURIComponent(id);
    } catch (problem) {
      setWould(null);
      complain(problem);
    }
  };
  return (
    <>
      <h1>Submit a job</h1>
      <form class="fields" onSubmit={(e) => { e.preventDefault(); void send(false); }}>
        <label class="all">
          Command, as you would type it in a shell
          <textarea required rows={3} spellcheck={false} placeholder="python train.py --epochs 3" value={spec.command ?? ""} onInput={(e) => set("command", e.currentTarget.value)} />
        </label>
        {fields.map(([key, title, such]) => (
          <label key={key}>
            {title}
            <input value={spec[key] ?? ""} placeholder={such} onInput={(e) => set(key, e.currentTarget.value)} />
          </label>
        ))}
        <p class="buttons all">
          <button type="button" disabled={!spec.command?.trim()} onClick={() => void send(true)}>What would happen?</button>
          <button class="main">Submit</button>
        </p>
      </form>
      <div role="status">
        {would?.jobs.map((j, i) => (
          <div class="story" key={i}>
            <p>{wouldText(j)}</p>
            {j.notes?.map((note) => <p key={note}>{clean(note)}</p>)}
          </div>
        ))}
      </div>
    </>
  );
}
