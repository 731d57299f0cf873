// What the tests see and do in a page, as a person would.
addEventListener("securitypolicyviolation", (e) => breach(`${e.violatedDirective} ${e.blockedURI} ${e.sample}`));
globalThis.test = {
  heading: () => document.querySelector("h1")?.innerText ?? "",

  // Waits a little for a condition, so that it is not asked for a thousand times.
  until: (holds) =>
    new Promise((done) => {
      const end = Date.now() + 500;
      const look = () => {
        const found = holds();
        if (found || Date.now() > end) done(!!found);
        else setTimeout(look, 20);
      };
      look();
    }),

  name: (e) => (e.getAttribute("aria-label") ?? e.innerText).trim(),
  seen: (e) => e.checkVisibility({ visibilityProperty: true, opacityProperty: true }),

  // Clicks an element with a name, if it is in sight and nothing covers it.
  click: (selector, name) => {
    const found = [...document.querySelectorAll(selector)].find((e) => test.name(e) === name && test.seen(e) && !e.disabled);
    if (!found) return false;
    found.scrollIntoView({ block: "center", behavior: "instant" });
    const box = found.getBoundingClientRect();
    const top = document.elementFromPoint(box.left + box.width / 2, box.top + box.height / 2);
    if (!found.contains(top)) return false;
    found.click();
    return true;
  },

  control: (label) => [...document.querySelectorAll("label")].find((e) => test.seen(e) && [...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim() === label))?.control,

  focus: (label) => {
    const field = test.control(label);
    field?.focus();
    field?.select();
    return document.activeElement === field;
  },

  // Sets a field that is not typed into as text, such as a time.
  set: (label, value) => {
    const field = test.control(label);
    if (!field) return false;
    field.value = value;
    field.dispatchEvent(new Event("input", { bubbles: true }));
    return field.value === value;
  },

  choose: (label, option) => {
    const list = test.control(label);
    const found = [...(list?.options ?? [])].find((o) => o.text === option);
    if (!found) return false;
    list.value = found.value;
    list.dispatchEvent(new Event("change", { bubbles: true }));
    return true;
  },

  // The session that the page keeps, as any script of this origin can have it.
  own: () =>
    new Promise((done, fail) => {
      const opening = indexedDB.open("berth", 1);
      opening.onupgradeneeded = () => opening.result.createObjectStore("session");
      opening.onerror = () => fail(opening.error);
      opening.onsuccess = () => {
        const asked = opening.result.transaction("session").objectStore("session").get("own");
        asked.onsuccess = () => {
          opening.result.close();
          done(asked.result);
        };
        asked.onerror = () => fail(asked.error);
      };
    }),

  base64: (data) => btoa(String.fromCharCode(...new Uint8Array(data))).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", ""),

  // What proves a request to a server with a challenge.
  sign: async (challenge, method, path, body = "") => {
    test.had = (await test.own()) ?? test.had; // a script can keep what the page forgets
    const { id, key } = test.had;
    const bytes = new TextEncoder();
    const said = [id, challenge, String(crypto.getRandomValues(new BigUint64Array(1))[0]), test.base64(await crypto.subtle.digest("SHA-256", bytes.encode(body)))];
    const text = ["berth-session", method, path, ...said].join("\n");
    const signature = await crypto.subtle.sign({ name: "ECDSA", hash: "SHA-256" }, key, bytes.encode(text));
    return [...said, test.base64(signature)].join(".");
  },

  // Sends a request as the session of this origin.
  signed: async (method, path, body = "") => {
    const asked = await fetch("/v1/status", { headers: { "Berth-Session": "unsigned" } });
    const header = await test.sign(asked.headers.get("Berth-Challenge"), method, path, body);
    return fetch(path, { method, body: body || undefined, headers: { "Berth-Session": header } });
  },
};
