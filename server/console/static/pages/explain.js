// Explain a request with any key: one has the key, its prefix or its id, and wants to know why it is refused.
import { html } from '../ui/html.js';
import { Page } from '../ui/page.js';
import { href } from '../router.js';
import { paths } from '../paths.js';
import { Explain } from './key/explain.js';

export const ExplainRequest = () => html`<${Page} title="Explain a request" crumbs=${[['API keys', href(paths.keys)]]}>
  <${Explain} /><//>`;
