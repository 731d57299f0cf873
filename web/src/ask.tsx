// One question at a time, in a dialog that the keyboard can answer.
import { signal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";

interface Question {
  text: string;
  yes: string;
  done: (agreed: boolean) => void;
}

const question = signal<Question | null>(null);

export function ask(text: string, yes: string): Promise<boolean> {
  return new Promise((done) => (question.value = { text, yes, done }));
}

export function Ask() {
  const dialog = useRef<HTMLDialogElement>(null);
  const open = question.value;
  useEffect(() => {
    if (open) dialog.current?.showModal();
  }, [open]);
  if (!open) return null;
  const answer = (agreed: boolean) => {
    dialog.current?.close();
    question.value = null;
    open.done(agreed);
  };
  return (
    <dialog ref={dialog} aria-labelledby="question" onCancel={() => answer(false)}>
      <p id="question">{open.text}</p>
      <p class="buttons">
        <button onClick={() => answer(false)}>No</button>
        <button class="danger" onClick={() => answer(true)}>{open.yes}</button>
      </p>
    </dialog>
  );
}
