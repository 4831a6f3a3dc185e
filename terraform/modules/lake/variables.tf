variable "kms_key_arn" {
  description = "ARN of the key that the buckets are encrypted with."
  type        = string
}

variable "namespace" {
  description = "Glue database of the lake, which is TAILRACE_NAMESPACE."
  type        = string

  validation {
    condition     = can(regex("^[a-z][a-z0-9_]{0,254}$", var.namespace))
    error_message = "namespace: set small letters, digits and underscores, a letter first, such as tailrace_dev: Glue and tailrace both take it then."
  }
}

variable "more_databases" {
  description = "Further Glue databases on the same warehouse, such as the marts of dbt."
  type        = list(string)
  default     = []

  validation {
    condition     = alltrue([for one in var.more_databases : can(regex("^[a-z][a-z0-9_]{0,254}$", one))])
    error_message = "more_databases: set names of small letters, digits and underscores, a letter first."
  }
}

variable "warehouse_prefix" {
  description = "Prefix of the tables in the lake's bucket, with no slash at its end."
  type        = string
  default     = "warehouse"

  validation {
    condition     = can(regex("^[A-Za-z0-9][A-Za-z0-9_/-]*[A-Za-z0-9]$", var.warehouse_prefix))
    error_message = "warehouse_prefix: set a prefix such as warehouse, with no slash at either end."
  }
}

variable "artifacts_prefix" {
  description = "Prefix in the bucket of artifacts, with no slash at its end."
  type        = string
  default     = "tailrace"

  validation {
    condition     = can(regex("^[A-Za-z0-9][A-Za-z0-9._/-]*[A-Za-z0-9]$", var.artifacts_prefix))
    error_message = "artifacts_prefix: set a prefix such as tailrace or tailrace/42, with no slash at either end."
  }
}

variable "noncurrent_days" {
  description = "Days for which what was deleted or written over in a bucket can be had back."
  type        = number
  default     = 14

  validation {
    condition     = var.noncurrent_days >= 1 && floor(var.noncurrent_days) == var.noncurrent_days
    error_message = "noncurrent_days: set a whole number of days, 1 or more."
  }
}

variable "checkpoint_days" {
  description = "Days after which files of checkpoints expire; a stream with nothing to read for so long makes its checkpoint anew from the log."
  type        = number
  default     = 30

  validation {
    condition     = var.checkpoint_days >= 7
    error_message = "checkpoint_days: set 7 or more, so that a stream that is merely quiet keeps its checkpoint."
  }
}

variable "log_days" {
  description = "Days for which logs and outcomes of job runs are kept in S3."
  type        = number
  default     = 90

  validation {
    condition     = var.log_days >= 7
    error_message = "log_days: set 7 or more: Airflow reads a run's outcome from there."
  }
}

variable "access_logs" {
  description = "Whether to log who reads and writes the buckets, into a bucket of its own."
  type        = bool
  default     = true
}

variable "encrypt_catalog" {
  description = "Whether to encrypt the account's Glue catalog with the key. It is one setting for all databases of the account and region."
  type        = bool
  default     = false
}

variable "force_destroy" {
  description = "Whether terraform destroy deletes the buckets with all that is in them."
  type        = bool
  default     = false
}
