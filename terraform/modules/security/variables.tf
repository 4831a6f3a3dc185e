variable "existing_kms_key_arn" {
  description = "A KMS key that is there already; null: one is made. Its policy has to let CloudWatch Logs, CloudWatch alarms and Budgets use it."
  type        = string
  default     = null

  validation {
    condition     = var.existing_kms_key_arn == null || can(regex("^arn:aws[a-z-]*:kms:[a-z0-9-]+:[0-9]{12}:key/", coalesce(var.existing_kms_key_arn, "-")))
    error_message = "existing_kms_key_arn: set the ARN of a key (arn:aws:kms:REGION:ACCOUNT:key/ID), not of an alias, or null."
  }
}

variable "key_deletion_days" {
  description = "Days between asking for the key's deletion and its deletion, in which it can be had back."
  type        = number
  default     = 30

  validation {
    condition     = var.key_deletion_days >= 7 && var.key_deletion_days <= 30
    error_message = "key_deletion_days: KMS takes 7 to 30."
  }
}

variable "lake_bucket_arn" {
  description = "ARN of the bucket of the tables."
  type        = string
}

variable "warehouse_prefix" {
  description = "Prefix of the tables in the lake's bucket, with no slash at its end."
  type        = string
  default     = "warehouse"
}

variable "artifacts_bucket_arn" {
  description = "ARN of the bucket of the jobs' code, outcomes and logs."
  type        = string
}

variable "artifacts_prefix" {
  description = "Prefix in the bucket of artifacts, with no slash at its end."
  type        = string
  default     = "tailrace"
}

variable "landing" {
  description = "Where files land that streams read: by bucket name, the prefix in it (\"\" for all). The buckets are not made here."
  type        = map(string)
  default     = {}
}

variable "databases" {
  description = "Names of the Glue databases that the jobs write."
  type        = list(string)

  validation {
    condition     = length(var.databases) > 0
    error_message = "databases: name at least the one of the lake."
  }
}

variable "applications" {
  description = "ARNs of the EMR Serverless applications: of the stream, and of backfills and maintenance."
  type = object({
    stream   = string
    backfill = string
  })
}

variable "log_groups" {
  description = "ARNs of the log groups that the drivers write, without :* at their end."
  type = object({
    stream   = string
    backfill = string
  })
}

variable "msk" {
  description = "MSK cluster that the stream reads with IAM: its name, and the topics it may read. null: none."
  type = object({
    cluster_name = string
    topics       = optional(list(string), ["*"])
  })
  default = null
}

variable "airflow" {
  description = "Whether to make the execution role of MWAA, for the environment NAME-airflow."
  type        = bool
  default     = true
}

variable "analyst_principals" {
  description = "ARNs of who may take the analysts' role, which reads the answers. Empty: there is no such role."
  type        = list(string)
  default     = []

  validation {
    condition     = alltrue([for one in var.analyst_principals : can(regex("^arn:aws[a-z-]*:(iam|sts)::[0-9]{12}:(role|user|root|assumed-role)", one))])
    error_message = "analyst_principals: set ARNs of IAM roles, users or accounts (arn:aws:iam::ACCOUNT:root); \"*\" is none."
  }
}

variable "secrets" {
  description = "Secrets to make, by name, with what each is for and which of stream, backfill and airflow may read it. Their values are not set here, so that no state has them."
  type = map(object({
    description = string
    readers     = list(string)
  }))
  default = {}

  validation {
    condition     = alltrue([for one in values(var.secrets) : length(one.readers) > 0 && length(setsubtract(one.readers, ["stream", "backfill", "airflow"])) == 0])
    error_message = "secrets: readers is a list of stream, backfill and airflow, with at least one of them."
  }
  validation {
    condition     = alltrue([for name in keys(var.secrets) : can(regex("^[a-z][a-z0-9/_-]*$", name))])
    error_message = "secrets: a name has small letters, digits, / _ and -, such as kafka/password."
  }
}

variable "secret_recovery_days" {
  description = "Days in which a deleted secret can be had back; 0 deletes it at once."
  type        = number
  default     = 30

  validation {
    condition     = var.secret_recovery_days == 0 || (var.secret_recovery_days >= 7 && var.secret_recovery_days <= 30)
    error_message = "secret_recovery_days: Secrets Manager takes 0, or 7 to 30."
  }
}
