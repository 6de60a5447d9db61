// The pages: path, title, and who sees them. nav puts a page into the side bar: [group, icon]. needs is the permission to read
// what the page shows. A page that is not here does not exist yet.
import { Subscriptions } from './pages/subscriptions.js';
import { Organizations } from './pages/organizations.js';
import { Organization } from './pages/organization.js';
import { Users } from './pages/users.js';
import { User } from './pages/user.js';
import { System } from './pages/system.js';
import { Plans, Plan } from './pages/plans.js';
import { Roles, Role } from './pages/roles.js';
import { Permissions, Permission } from './pages/permissions.js';

export const pages = [
  { path: '/subscriptions/', title: 'Subscriptions', page: Subscriptions, needs: 'webhooks:read', nav: ['', 'subscriptions'] },
  { path: '/organizations/', title: 'Organizations', page: Organizations, needs: 'platform:read', nav: ['Operator', 'organizations'] },
  { path: '/organizations/{id}/', title: 'Organization', page: Organization, needs: 'platform:read' },
  { path: '/users/', title: 'Users', page: Users, needs: 'platform:read', nav: ['Operator', 'users'] },
  { path: '/users/{id}/', title: 'User', page: User, needs: 'platform:read' },
  { path: '/plans/', title: 'Plans', page: Plans, needs: 'platform:read', nav: ['Operator', 'plans'] },
  { path: '/plans/{name}/', title: 'Plan', page: Plan, needs: 'platform:read' },
  { path: '/roles/', title: 'Roles', page: Roles, needs: 'platform:read', nav: ['Operator', 'roles'] },
  { path: '/roles/{name}/', title: 'Role', page: Role, needs: 'platform:read' },
  { path: '/permissions/', title: 'Permissions', page: Permissions, needs: 'platform:read', nav: ['Operator', 'lock'] },
  { path: '/permissions/{permission}/', title: 'Permission', page: Permission, needs: 'platform:read' },
  { path: '/system/', title: 'System', page: System, needs: 'platform:read', nav: ['Operator', 'system'] },
];

// first is the page that opens at the root of the console if there is no overview.
export const first = pages[0].path;
