// Text to take elsewhere, with a button that copies it.

import { useRef } from 'preact/hooks';
import { useNote } from './note';

/** `disabled`: what is shown is not complete yet. */
export function Copy({ text, disabled = false }: { text: string; disabled?: boolean }) {
  const code = useRef<HTMLElement>(null);
  const [note, setNote] = useNote();
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text);
      setNote('Copied.');
    } catch {
      getSelection()?.selectAllChildren(code.current!);
      setNote('The browser does not let this page copy: it is selected.');
    }
  };
  return (
    <div class="copy">
      <code ref={code}>{text}</code>
      <button aria-label={`Copy: ${text}`} disabled={disabled} onClick={() => void copy()}>
        Copy
      </button>
      <span class="dim" role="status">
        {note}
      </span>
    </div>
  );
}
