import { render } from "preact";
import { App } from "./app";

const root = document.getElementById("page");
if (root) render(<App />, root);

// A page that the browser keeps for its back button would keep its streams, and a
// few of those are all connections that a browser has to one host.
addEventListener("pagehide", () => stop());
addEventListener("pageshow", (event) => {
  if (event.persisted) location.reload();
});
