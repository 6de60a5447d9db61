// The switch for light and dark colours, in the menu of the user. Without a choice, the colours are those of the system.
import { createStore, useStore } from '../ui/store.js';

const root = document.documentElement;
const colours = createStore({ chosen: root.dataset.colours });
const system = matchMedia('(prefers-color-scheme: dark)');

function choose(chosen) {
  root.dataset.colours = chosen;
  colours.set({ chosen });
  try {
    localStorage.setItem('keyhook-colours', chosen);
  } catch { /* it holds until the page is loaded again */ }
}

export function useColours() {
  const { chosen } = useStore(colours);
  const isDark = chosen ? chosen === 'dark' : system.matches;
  return [
    { text: isDark ? 'Light colours' : 'Dark colours', icon: 'colours', onClick: () => choose(isDark ? 'light' : 'dark') },
    chosen && { text: 'Colours of the system', icon: 'colours', onClick: () => choose('') },
  ];
}
