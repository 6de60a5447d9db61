// What the server tells the page: paths, the name, and the ways to sign in.
const { base, root, name, oidc, parts, portal, logo } = document.querySelector('meta[name="keyhook"]').dataset;

export const settings = { base, root, name, oidc: oidc === 'true', parts: parts === 'true', portal: portal.split(' '), logo };
