
// Each block of code gets a button that copies it. Without a script, nothing is missing but the buttons.
addEventListener('DOMContentLoaded', () => {
  for (const code of document.querySelectorAll('.code')) {
    const button = document.createElement('button'), text = code.querySelector('pre');
    button.type = 'button';
    button.textContent = 'Copy';
    button.addEventListener('click', async () => {
      try {
        await navigator.clipboard.writeText(text.textContent.trimEnd());
        button.textContent = 'Copied';
      } catch { // a browser copies only from pages with HTTPS, and from this machine
        getSelection().selectAllChildren(text);
        button.textContent = 'Selected: press Ctrl C';
      }
    });
    button.addEventListener('blur', () => { button.textContent = 'Copy'; });
    code.append(button);
  }
});
