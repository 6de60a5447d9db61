// Preact with htm: html`<p>…</p>` makes elements. Values are always shown as text.
import { h } from '../vendor/preact.mjs';
import htm from '../vendor/htm.mjs';

export const html = htm.bind(h);
export { h, render, Component, createContext, Fragment, cloneElement } from '../vendor/preact.mjs';
export { useState, useEffect, useLayoutEffect, useRef, useMemo, useCallback, useContext, useId } from '../vendor/hooks.mjs';

// cx joins the class names that are set.
export const cx = (...names) => names.filter(Boolean).join(' ');
