// What the server tells the page: paths, the name, the ways to sign in, and the prefix of headers.
const { base, root, name, oidc, parts, portal, logo, prefix } = document.querySelector('meta[name="keyhook"]').dataset;

export const settings = { base, root, name, oidc: oidc === 'true', parts: parts === 'true', portal: portal.split(' '), logo, prefix };
