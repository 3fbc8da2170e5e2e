// A few words about what was just done, which go by themselves.

import { useEffect, useState } from 'preact/hooks';

/** The words, and how to say others. */
export function useNote(): [string, (note: string) => void] {
  const [note, setNote] = useState('');
  useEffect(() => {
    if (!note) return;
    const timer = setTimeout(() => setNote(''), 4000);
    return () => clearTimeout(timer);
  }, [note]);
  return [note, setNote];
}
