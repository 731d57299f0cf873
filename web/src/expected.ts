// When the first waiting jobs are expected to start. Each answer costs the
// daemon a forecast, so only the head of the queue is asked about, and not often.
import { useEffect, useRef, useState } from "preact/hooks";
import { api, type Why } from "./api";
import { firstOfEach, mostOwn } from "./own";
import { jobs, now } from "./store";

const mostAsked = 20;
const pause = 5000;

/** The answers, those about a user's own jobs first. */
export function useExpected(user = ""): Why[] {
  const [found, setFound] = useState<Why[]>([]);
  const asked = useRef({ at: 0, busy: false, gone: false });
  const waiting = jobs.value.filter((j) => j.state === "queued" || j.state === "parked");
  const own = user ? firstOfEach(waiting.filter((j) => j.user === user), mostOwn) : [];
  const first = [...new Set([...own, ...waiting.slice(0, mostAsked)].map((j) => j.id))].join(" ");
  const minute = Math.floor(now.value / 60_000);
  useEffect(() => () => void (asked.current.gone = true), []);
  useEffect(() => {
    const state = asked.current;
    const ask = async () => {
      if (state.busy) return; // the next minute asks again
      state.busy = true;
      state.at = Date.now();
      const all: Why[] = [];
      for (const id of first.split(" ").filter(Boolean)) {
        if (state.gone) return;
        try {
          const why = await api.why(id);
          all.push(why);
          setFound((before) => [...before.filter((w) => w.id !== id), why]);
        } catch {
          // it may have started or ended meanwhile
        }
      }
      setFound(all);
      state.busy = false;
    };
    const soon = setTimeout(() => void ask(), Math.max(0, state.at + pause - Date.now()));
    return () => clearTimeout(soon);
  }, [first, minute]);
  const there = new Set(waiting.map((j) => j.id));
  return found.filter((w) => there.has(w.id));
}
