// When the first waiting jobs are expected to start. Each answer costs the
// daemon a forecast, so only the head of the queue is asked about.
import { useEffect, useState } from "preact/hooks";
import { api, type Why } from "./api";
import { jobs, now } from "./store";

const mostAsked = 20;

export function useExpected(): Why[] {
  const [found, setFound] = useState<Why[]>([]);
  const first = jobs.value.filter((j) => j.state === "queued").slice(0, mostAsked).map((j) => j.id).join(" ");
  const minute = Math.floor(now.value / 60_000);
  useEffect(() => {
    let stopped = false;
    void (async () => {
      const all: Why[] = [];
      for (const id of first.split(" ").filter(Boolean)) {
        if (stopped) return;
        try {
          all.push(await api.why(id));
        } catch {
          // it may have started or ended meanwhile
        }
      }
      if (!stopped) setFound(all);
    })();
    return () => void (stopped = true);
  }, [first, minute]);
  return found;
}
