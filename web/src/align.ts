import type { Samples } from "./api";

const seconds = (at: string) => Date.parse(at) / 1000;

/** Samples as uPlot takes them: one column of times, one of values per track. Pure. */
export function align(samples: Samples, key: "vram_mib" | "util"): (number | null)[][] {
  const parked = samples.parked.map((p) => seconds(p.from) + 0.001); // the last value before it counts until then
  const lines = samples.tracks.map((track) => {
    const line = new Map<number, number | null>(parked.map((t) => [t, null]));
    track.points.forEach((p, i) => {
      const before = track.points[i - 1];
      if (p.after_gap && before) line.set((seconds(before.at) + seconds(p.at)) / 2, null);
      line.set(seconds(p.at), p[key]);
    });
    return line;
  });
  const x = [...new Set(lines.flatMap((line) => [...line.keys()]))].sort((a, b) => a - b);
  // undefined: drawn through; null: a gap
  return [x, ...lines.map((line) => x.map((t) => line.get(t)))] as (number | null)[][];
}

/** The lines of a chart by what tells them apart; none for a single one. Pure. */
export function lineNames(samples: Samples): string[] {
  const tracks = samples.tracks;
  if (tracks.length < 2) return [];
  const several = (values: (number | undefined)[]) => new Set(values).size > 1;
  const [attempts, gpus] = [several(tracks.map((t) => t.attempt)), several(tracks.map((t) => t.gpu))];
  return tracks.map((t) => [attempts && `attempt ${t.attempt}`, (gpus || !attempts) && `GPU ${t.gpu}`].filter(Boolean).join(", "));
}

/** An axis of time on which no two ticks show the same second. Pure. */
export function timeRange(low: number, high: number): [number, number] {
  const missing = Math.max(0, 20 - (high - low));
  return [low - missing / 2, high + missing / 2];
}
