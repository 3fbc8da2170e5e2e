// Dark, light, or as the system is. Kept in this browser; it is no secret.

import { useLayoutEffect, useState } from 'preact/hooks';

export type Theme = 'system' | 'dark' | 'light';

const NAME = 'statusbridge-theme';
const ORDER: Theme[] = ['system', 'dark', 'light'];

export function nextTheme(theme: Theme): Theme {
  return ORDER[(ORDER.indexOf(theme) + 1) % ORDER.length]!;
}

export function useTheme(): [Theme, (theme: Theme) => void] {
  const [theme, set] = useState<Theme>(() => {
    const kept = localStorage.getItem(NAME) as Theme | null;
    return kept && ORDER.includes(kept) ? kept : 'system';
  });
  useLayoutEffect(() => {
    document.documentElement.dataset.theme = theme;
    localStorage.setItem(NAME, theme);
  }, [theme]);
  return [theme, set];
}
