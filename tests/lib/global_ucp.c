/* SPDX-License-Identifier: Apache-2.0 */
/* A library that is not UCX but exports some of its names, as a host may have loaded with global scope. */

int ucp_worker_progress(void *worker);
int ucp_worker_arm(void *worker);

int ucp_worker_progress(void *worker)
{
    (void)worker;
    return 0;
}

int ucp_worker_arm(void *worker)
{
    (void)worker;
    return -22;
}
