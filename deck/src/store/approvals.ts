// Everything that waits for a person.

import { computed, signal } from "@preact/signals";
import { ApiError, api } from "../api";
import type { Pending } from "../types";

export const approvals = signal<Pending[]>([]);
export const approvalsKnown = signal(false);
export const approvalsProblem = signal<ApiError | null>(null);
export const waiting = computed(() => approvals.value.length);

let asking = false;
let again = false;

/** Ask the server anew; calls that come meanwhile become one more. */
export async function refreshApprovals(): Promise<void> {
  if (asking) {
    again = true;
    return;
  }
  asking = true;
  try {
    do {
      again = false;
      approvals.value = (await api.approvals()).approvals;
      approvalsKnown.value = true;
      approvalsProblem.value = null;
    } while (again);
  } catch (error) {
    approvalsProblem.value = error instanceof ApiError ? error : new ApiError(0, "broken", String(error));
  } finally {
    asking = false;
  }
}
