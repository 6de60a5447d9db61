// A text field with a list of results, for the search box and the switcher of organizations. Arrow keys move, Enter opens.
import { html, cx, useState, useEffect, useRef, useId } from '../ui/html.js';
import { count } from '../ui/time.js';
import { groupBy } from '../ui/group.js';
import { isAborted } from '../api.js';

// find(text, signal) returns results with a key or an id, those of one group together; group(result) is the heading of its group.
// show(result) returns elements; choose(result) opens one. clean(text) is what to look for. With early, the list opens before
// something is typed. none(text) says that nothing was found.
export function Combobox({ id, label, placeholder, find, group, show, choose, onClose, none,
  clean = (text) => text.trim(), early = false, autofocus = false, before }) {
  const [text, setText] = useState('');
  const [state, setState] = useState({ for: null, results: [], error: null });
  const [open, setOpen] = useState(autofocus);
  const [at, setAt] = useState(0);
  const field = useRef(null);
  const list = useId();
  const entered = useRef(null); // the text with which Enter was pressed before its results came
  const wanted = clean(text);
  const active = open && (early || wanted !== '');

  useEffect(() => { if (autofocus) field.current.focus(); }, []);
  useEffect(() => {
    if (!active) return undefined;
    const control = new AbortController();
    const timer = setTimeout(async () => {
      try {
        const results = await find(wanted, control.signal);
        if (entered.current === wanted && results.length) return take(results[0]);
        setState({ for: wanted, results, error: null });
        setAt(0);
      } catch (error) {
        if (!isAborted(error)) setState({ for: wanted, results: [], error });
      }
    }, wanted ? 120 : 0);
    return () => { clearTimeout(timer); control.abort(); };
  }, [wanted, active]);

  const close = () => {
    setOpen(false);
    entered.current = null;
    onClose?.();
  };
  const take = (result) => {
    setText('');
    field.current.blur();
    close();
    choose(result);
  };
  const onKeyDown = (event) => {
    const { results } = state;
    if (event.key === 'ArrowDown') setAt(Math.min(at + 1, results.length - 1));
    else if (event.key === 'ArrowUp') setAt(Math.max(at - 1, 0));
    else if (event.key === 'Enter' && state.for !== wanted) entered.current = wanted;
    else if (event.key === 'Enter' && results[at]) take(results[at]);
    else if (event.key === 'Escape') { setText(''); field.current.blur(); close(); }
    else return;
    event.preventDefault();
    event.stopPropagation();
  };
  const showing = active && state.for !== null;
  return html`<div class="combobox">
    ${before}
    <input ref=${field} id=${id} class="combobox-field" type="text" role="combobox"
      autofocus=${autofocus} aria-label=${label} placeholder=${placeholder} value=${text}
      aria-expanded=${showing} aria-controls=${list} aria-autocomplete="list" autocomplete="off" spellcheck="false" dir="auto"
      aria-activedescendant=${showing && state.results[at] ? `${list}-${at}` : undefined}
      onInput=${(e) => { setText(e.target.value); setOpen(true); }} onFocus=${() => setOpen(true)} onBlur=${close} onKeyDown=${onKeyDown} />
    <div class="combobox-list" hidden=${!showing} onMouseDown=${(e) => e.preventDefault()}>
      <${Options} id=${list} label="Results" results=${state.results} ...${{ group, show, take, at, setAt }} />
      <span class="hidden-label" role="status">${showing && state.results.length > 0 && count(state.results.length, 'result')}</span>
      ${showing && state.results.length === 0 && html`<p class="option quiet" role="status">${state.error ? state.error.message : none(state.for)}</p>`}
    </div>
  </div>`;
}

// Options are the results below a field, in groups. at is the one that Enter takes.
export function Options({ id, label, results, group = () => '', show, take, at, setAt }) {
  const groups = groupBy(results.entries(), ([, result]) => group(result));
  useEffect(() => { document.getElementById(`${id}-${at}`)?.scrollIntoView({ block: 'nearest' }); }, [at]);
  return html`<div role="listbox" id=${id} aria-label=${label}>
    ${[...groups].map(([name, each]) => html`<div key=${name} role="group" aria-label=${name || label}>
      ${name && html`<div class="option-group" aria-hidden="true">${name}</div>`}
      ${each.map(([i, result]) => html`<div key=${result.key ?? result.id} id=${`${id}-${i}`} role="option" aria-selected=${i === at}
        class=${cx('option', i === at && 'at')} onClick=${() => take(result)} onMouseMove=${() => setAt(i)}>${show(result)}</div>`)}</div>`)}
  </div>`;
}
