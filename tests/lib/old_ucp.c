/* SPDX-License-Identifier: Apache-2.0 */
/* A libucp of an unsupported version: all that convoy may call in it. */

void ucp_get_version(unsigned *major, unsigned *minor, unsigned *release);
const char *ucp_get_version_string(void);

void ucp_get_version(unsigned *major, unsigned *minor, unsigned *release)
{
    *major = 1;
    *minor = 12;
    *release = 1;
}

const char *ucp_get_version_string(void)
{
    return "1.12.1";
}
