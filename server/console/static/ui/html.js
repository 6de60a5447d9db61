// Preact with htm: html`<p>…</p>` makes elements. Values are always shown as text.
import { h } from '../vendor/preact.mjs';
import htm from '../vendor/htm.mjs';

// A portal calls a subscription an endpoint, in our own texts only.
let isPortal = false;
export const setPortal = (is) => { isPortal = is; };

const noun = /(?<![\w./-]|name=")(a )?(s)ubscription(s?)(?![\w/=-]|\.\w)/gi;
export const named = (text) => (isPortal && typeof text === 'string' ? text.replace(noun, (all, article, first, s) =>
  `${article ? article[0] + 'n ' : ''}${first === 'S' ? 'E' : 'e'}ndpoint${s}`) : text);

const create = htm.bind(h), inPortal = new WeakMap();
export function html(strings, ...values) {
  if (isPortal && !inPortal.has(strings)) inPortal.set(strings, strings.map(named));
  return create(isPortal ? inPortal.get(strings) : strings, ...values);
}
export { render, Component, createContext } from '../vendor/preact.mjs';
export { useState, useEffect, useLayoutEffect, useRef, useMemo, useCallback, useContext, useId } from '../vendor/hooks.mjs';

// breakable is text that breaks after a slash.
export const breakable = (text) => text.split(/(?<=\/)/).map((part) => html`${part}<wbr />`);

// cx joins the class names that are set.
export const cx = (...names) => names.filter(Boolean).join(' ');
