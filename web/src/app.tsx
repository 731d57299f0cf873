import { signal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { api } from "./api";
import { Ask } from "./ask";
import { complain, connected, enter, follow, loggedIn, message, say, session, status } from "./store";
import { clean } from "./format";
import { HistoryView } from "./views/history";
import { JobView } from "./views/job";
import { Login } from "./views/login";
import { Overview } from "./views/overview";
import { Submit } from "./views/submit";
import { Timeline } from "./views/timeline";
import { Users } from "./views/users";
import { WhatIf } from "./views/whatif";

const route = signal(location.hash.slice(1) || "/");

// A login address is good once, and must not stay in the history.
async function arrive(): Promise<void> {
  const given = /^login=(.+)$/.exec(location.hash.slice(1))?.[1];
  if (!given) {
    route.value = location.hash.slice(1) || "/";
    loggedIn.value ??= await api.resume();
    return;
  }
  history.replaceState(null, "", "/");
  route.value = "/";
  await enter(given);
}

const views = [
  ["/", "Overview"],
  ["/timeline", "Timeline"],
  ["/history", "History"],
  ["/users", "Users"],
  ["/what-if", "What-if"],
  ["/submit", "Submit"],
] as const;

// A part of an address as text. People type addresses, and a wrong one is a job
// that does not exist, not the end of the page.
function decoded(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

function View() {
  const [, name, id] = route.value.split("?")[0]?.split("/") ?? [];
  switch (name) {
    case "job":
      return <JobView key={id} id={decoded(id ?? "")} />;
    case "timeline":
      return <Timeline />;
    case "history":
      return <HistoryView />;
    case "users":
      return <Users />;
    case "what-if":
      return <WhatIf />;
    case "submit":
      return <Submit />;
  }
  return <Overview />;
}

function Message() {
  const said = message.value;
  useEffect(() => {
    if (!said || said.bad) return;
    const gone = setTimeout(() => (message.value = null), 6000);
    return () => clearTimeout(gone);
  }, [said]);
  return (
    <div class="message" role="status" aria-live="polite">
      {said && (
        <p class={said.bad ? "bad" : "good"}>
          {clean(said.text)} <button onClick={() => (message.value = null)}>Close</button>
        </p>
      )}
    </div>
  );
}

async function logout(): Promise<void> {
  try {
    await api.logout();
    loggedIn.value = false;
    say("logged out");
  } catch (problem) {
    complain(problem);
  }
}

export function App() {
  useEffect(() => {
    void arrive();
    const moved = () => {
      if (message.value?.bad) message.value = null; // it was about the view before
      void arrive();
    };
    addEventListener("hashchange", moved);
    return () => removeEventListener("hashchange", moved);
  }, []);
  useEffect(() => {
    if (!loggedIn.value) return;
    const stop = new AbortController();
    void follow(stop.signal);
    return () => stop.abort();
  }, [loggedIn.value, session.value]);
  if (!loggedIn.value) {
    return (
      <>
        <main id="main">
          <Message />
          {loggedIn.value === false && <Login />}
        </main>
        <Ask />
      </>
    );
  }
  const here = route.value.split("?")[0];
  const known = status.value;
  return (
    <>
      <a class="skip" href="#main" onClick={(e) => { e.preventDefault(); document.getElementById("main")?.focus(); }}>
        Skip to the content
      </a>
      <header>
        <span class="brand">berth</span>
        <nav aria-label="Views">
          {views.map(([path, title]) => (
            <a key={path} href={"#" + path} aria-current={here === path ? "page" : undefined}>
              {title}
            </a>
          ))}
        </nav>
        <span class="you">
          {!connected.value && <strong class="lost">not connected</strong>} {known && clean(known.you.name)}{" "}
          <button onClick={() => void logout()}>Log out</button>
        </span>
      </header>
      <main id="main" tabIndex={-1}>
        <Message />
        {known?.blocked && <p class="warn">Nothing starts: {clean(known.blocked)}</p>}
        {known?.warnings?.map((text) => <p class="warn" key={text}>{clean(text)}</p>)}
        <View />
      </main>
      <Ask />
    </>
  );
}
