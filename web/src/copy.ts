import { say } from "./store";

/** Puts a job's id on the clipboard. Browsers allow it on pages of this machine and over TLS; the id can be marked by hand elsewhere. */
export async function copy(id: string): Promise<void> {
  try {
    await navigator.clipboard.writeText(id);
    say(`copied ${id}`);
  } catch {
    say(`this browser does not let the page copy; the id is ${id}`, true);
  }
}
