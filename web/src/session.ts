// A session of this browser: a key pair whose private half no script can read,
// not even one of this page. Each request is signed with it, so nothing that is
// sent helps whoever receives it in the daemon's place.

export interface Session {
  id: string;
  user: string;
  key: CryptoKey;
}

const algorithm = { name: "ECDSA", namedCurve: "P-256" };

/** Makes the key pair of a session to come; the public half is for the daemon. */
export async function newKey(): Promise<{ key: CryptoKey; shown: string }> {
  const pair = await crypto.subtle.generateKey(algorithm, false, ["sign"]);
  return { key: pair.privateKey, shown: base64(await crypto.subtle.exportKey("raw", pair.publicKey)) };
}

/** The header that proves a request: see internal/api/proof.go. */
export async function sign(by: Session, challenge: string, method: string, path: string, body: string): Promise<string> {
  const bytes = new TextEncoder();
  const nonce = crypto.getRandomValues(new BigUint64Array(1))[0];
  const said = [by.id, challenge, String(nonce), base64(await crypto.subtle.digest("SHA-256", bytes.encode(body)))];
  const text = ["berth-session", method, path, ...said].join("\n");
  const signature = await crypto.subtle.sign({ name: "ECDSA", hash: "SHA-256" }, by.key, bytes.encode(text));
  return [...said, base64(signature)].join(".");
}

function base64(data: ArrayBuffer): string {
  return btoa(String.fromCharCode(...new Uint8Array(data))).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
}

// The one session of this browser, for all its tabs. Where it cannot be kept, as
// in some private windows, it lasts as long as its tab.
let own: Session | null = null;

/** The session as this tab knows it. */
export const current = (): Session | null => own;

function kept<T>(mode: IDBTransactionMode, use: (store: IDBObjectStore) => IDBRequest<T>): Promise<T> {
  return new Promise((done, fail) => {
    const opening = indexedDB.open("berth", 1);
    opening.onupgradeneeded = () => opening.result.createObjectStore("session");
    opening.onerror = () => fail(opening.error);
    opening.onsuccess = () => {
      const change = opening.result.transaction("session", mode);
      const asked = use(change.objectStore("session"));
      change.oncomplete = () => done(asked.result);
      change.onabort = () => fail(change.error);
      opening.result.close(); // when the transaction is over
    };
  });
}

/** The session as all tabs know it. */
export async function load(): Promise<Session | null> {
  try {
    own = ((await kept("readonly", (store) => store.get("own"))) as Session | undefined) ?? null;
  } catch {
    // what this tab has must do
  }
  return own;
}

/** Makes a session that of all tabs, and returns the one whose place it took. */
export async function keep(session: Session): Promise<Session | null> {
  let before = own;
  own = session;
  try {
    before = ((await kept("readwrite", (store) => {
      const found = store.get("own");
      store.put(session, "own");
      return found;
    })) as Session | undefined) ?? null;
  } catch {
    // it lasts as long as this tab
  }
  return before;
}

/** Forgets a session that is over, unless another has taken its place. */
export async function forget(session: Session): Promise<void> {
  if ((await load())?.id !== session.id) return;
  own = null;
  try {
    await kept("readwrite", (store) => store.delete("own"));
  } catch {
    // it was this tab's alone
  }
}
