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
};
