// Runs before the page is painted: the light or dark colours that somebody chose in this browser; see shell/colours.js.
try {
  document.documentElement.dataset.colours = localStorage.getItem('keyhook-colours') ?? '';
} catch { /* the browser keeps nothing for this page */ }
