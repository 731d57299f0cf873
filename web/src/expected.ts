// When the first waiting jobs are expected to start. Each answer costs the
// daemon a forecast, so only the head of the queue is asked about.
import { useEffect, useState } from "preact/hooks";
import { api, type Why } from "./api";
import { firstOfEach, mostOwn } from "./own";
import { jobs, now } from "./store";

const mostAsked = 20;

/** The answers, those about a user's own jobs first. */
export function useExpected(user = ""): Why[] {
  const [found, setFound] = useState<Why[]>([]);
  const waiting = jobs.value.filter((j) => j.state === "queued" || j.state === "parked");
  const own = user ? firstOfEach(waiting.filter((j) => j.user === user), mostOwn) : [];
  const first = [...new Set([...own, ...waiting.slice(0, mostAsked)].map((j) => j.id))].join(" ");
  const minute = Math.floor(now.value / 60_000);
  useEffect(() => {
    let stopped = false;
    void (async () => {
      const all: Why[] = [];
      if (!first) setFound(all);
      for (const id of first.split(" ").filter(Boolean)) {
        if (stopped) return;
        try {
          all.push(await api.why(id));
          if (!stopped) setFound([...all]);
        } catch {
          // it may have started or ended meanwhile
        }
      }
    })();
    return () => void (stopped = true);
  }, [first, minute]);
  return found;
}
