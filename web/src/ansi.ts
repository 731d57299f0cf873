// The colours of a line of a log. Pure. Everything that a terminal would obey
// besides colours is dropped, and nothing ever becomes markup.
import { clean } from "./format";

export interface Span {
  text: string;
  names: string; // classes, as in style.css
}

const names = ["black", "red", "green", "yellow", "blue", "magenta", "cyan", "white"];
// CSI sequences, OSC strings (titles, links), and two-byte escapes.
const escapes = /\u001b(?:\[([0-?]*)[ -/]*([@-~])|\][^\u0007\u001b]*(?:\u0007|\u001b\\)?|[@-Z\\-_])/g;

/** Splits a line into spans of one look. Each line begins without colours. */
export function spans(line: string): Span[] {
  const found: Span[] = [];
  let colour = "";
  let bold = false;
  let dim = false;
  let at = 0;
  const push = (text: string) => {
    const shown = clean(text, 20_000);
    if (!shown) return;
    const look = [colour, bold ? "bold" : "", dim ? "dim" : ""].filter(Boolean).join(" ");
    found.push({ text: shown, names: look });
  };
  for (const match of line.matchAll(escapes)) {
    push(line.slice(at, match.index));
    at = match.index + match[0].length;
    if (match[2] !== "m") continue;
    const codes = (match[1] || "0").split(";").map(Number);
    for (let i = 0; i < codes.length; i++) {
      const code = codes[i] ?? 0;
      if (code === 0) [colour, bold, dim] = ["", false, false];
      else if (code === 1) bold = true;
      else if (code === 2) dim = true;
      else if (code === 22) [bold, dim] = [false, false];
      else if (code === 39) colour = "";
      else if (code >= 30 && code <= 37) colour = "c-" + names[code - 30];
      else if (code >= 90 && code <= 97) colour = "c-" + names[code - 90];
      else if (code === 38 || code === 48) i += codes[i + 1] === 5 ? 2 : 4; // other palettes: as plain text
    }
  }
  push(line.slice(at));
  return found;
}

/** What a terminal would show of a line with carriage returns: the last part. */
export function lastOverwrite(line: string): string {
  const parts = line.split("\r").filter((part) => part !== "");
  return parts[parts.length - 1] ?? "";
}

/** The text of a line without escapes, for searching. */
export function plain(line: string): string {
  return lastOverwrite(line).replace(escapes, "");
}
