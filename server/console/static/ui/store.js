// A value outside of components, with listeners.
import { useState, useLayoutEffect } from './html.js';

export function createStore(value) {
  const listeners = new Set();
  return {
    get: () => value,
    set(next) {
      value = typeof next === 'function' ? next(value) : { ...value, ...next };
      for (const listener of [...listeners]) listener();
    },
    subscribe(listener) {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
  };
}

// useStore renders the component again whenever the value changes.
export function useStore(store) {
  const [value, setValue] = useState(store.get());
  useLayoutEffect(() => {
    const update = () => setValue(() => store.get());
    update();
    return store.subscribe(update);
  }, [store]);
  return value;
}
