import { useState } from "preact/hooks";
import { api, type Submitted } from "../api";
import { clean, gpuList } from "../format";
import { complain, say } from "../store";

const fields = [
  ["name", "Name", "train"],
  ["dir", "Directory", "/home/ann/project"],
  ["gpus", "GPUs", "1"],
  ["vram", "Memory on each GPU", "18G"],
  ["timeout", "Time limit", "2h"],
  ["priority", "Priority", "0"],
  ["venv", "Virtual environment", ".venv"],
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
      if (dryRun) return setWould(reply);
      const id = reply.jobs[0]?.id ?? "";
      say(`submitted job ${id}`);
      location.hash = "/job/" + encodeURIComponent(id);
    } catch (problem) {
      complain(problem);
    }
  };
  return (
    <>
      <h1>Submit a job</h1>
      <form class="fields" onSubmit={(e) => { e.preventDefault(); void send(false); }}>
        <label>
          Command
          <textarea required rows={3} spellcheck={false} value={spec.command ?? ""} onInput={(e) => set("command", e.currentTarget.value)} />
        </label>
        {fields.map(([key, title, such]) => (
          <label key={key}>
            {title}
            <input value={spec[key] ?? ""} placeholder={such} onInput={(e) => set(key, e.currentTarget.value)} />
          </label>
        ))}
        <p class="buttons">
          <button type="button" onClick={() => void send(true)}>What would happen?</button>
          <button class="main">Submit</button>
        </p>
      </form>
      <div role="status">
        {would?.jobs.map((j, i) => (
          <p class="story" key={i}>
            It {clean(j.state)}{j.gpu_ids?.length ? ` on GPU ${gpuList(j.gpu_ids)}` : ""}. {clean(j.reason)} {(j.notes ?? []).map((n) => clean(n)).join(" ")}
          </p>
        ))}
      </div>
    </>
  );
}
