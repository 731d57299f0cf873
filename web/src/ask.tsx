// One question at a time, in a dialog that the keyboard can answer.
import { signal } from "@preact/signals";
import { useEffect, useRef, useState } from "preact/hooks";

interface Question {
  text: string;
  yes: string;
  danger: boolean;
  when?: string; // the label of a time that may be given
  done: (answer: string | null) => void;
}

const question = signal<Question | null>(null);

/** Asks before something is lost. */
export function ask(text: string, yes: string): Promise<boolean> {
  return new Promise((done) => (question.value = { text, yes, danger: true, done: (answer) => done(answer !== null) }));
}

/** Asks for a time, which may stay empty; null: never mind. */
export function askTime(text: string, yes: string, when: string): Promise<string | null> {
  return new Promise((done) => (question.value = { text, yes, danger: false, when, done }));
}

export function Ask() {
  return question.value && <Asked open={question.value} />;
}

function Asked({ open }: { open: Question }) {
  const dialog = useRef<HTMLDialogElement>(null);
  const [time, setTime] = useState("");
  useEffect(() => dialog.current?.showModal(), []);
  const answer = (given: string | null) => {
    dialog.current?.close();
    question.value = null;
    open.done(given);
  };
  return (
    <dialog ref={dialog} aria-labelledby="question" onCancel={() => answer(null)}>
      <form onSubmit={(e) => { e.preventDefault(); answer(time); }}>
        <p id="question">{open.text}</p>
        {open.when && (
          <p>
            <label>
              {open.when} <input type="datetime-local" value={time} onInput={(e) => setTime(e.currentTarget.value)} />
            </label>
          </p>
        )}
        <p class="buttons">
          <button type="button" onClick={() => answer(null)}>No</button>
          <button class={open.danger ? "danger" : "main"}>{open.yes}</button>
        </p>
      </form>
    </dialog>
  );
}
