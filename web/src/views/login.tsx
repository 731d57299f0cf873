import { useState } from "preact/hooks";
import { enter } from "../store";

export function Login() {
  const [secret, setSecret] = useState("");
  return (
    <form class="login" onSubmit={(e) => { e.preventDefault(); void enter(secret.trim()); }}>
      <h1>berth</h1>
      <p>
        On the machine itself, <code>berth web</code> prints an address that logs you in. Or paste a token, from <code>berth token create</code>.
      </p>
      <label>
        Token <input type="password" autocomplete="off" required value={secret} onInput={(e) => setSecret(e.currentTarget.value)} />
      </label>
      <button class="main">Log in</button>
    </form>
  );
}
