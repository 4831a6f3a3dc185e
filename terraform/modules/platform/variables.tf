variable "project" {
  description = "The project: the first part of every name, and a tag."
  type        = string
  default     = "tailrace"

  validation {
    condition     = can(regex("^[a-z][a-z0-9]{1,15}$", var.project))
    error_message = "project: set 2 to 16 small letters and digits, a letter first."
  }
}

variable "environment" {
  description = "The environment: the second part of every name, and a tag."
  type        = string

  validation {
    condition     = can(regex("^[a-z][a-z0-9]{1,11}$", var.environment))
    error_message = "environment: set 2 to 12 small letters and digits, such as dev or prod."
  }
}

variable "account_id" {
  description = "The AWS account, as the provider's own identity says it."
  type        = string

  validation {
    condition     = can(regex("^[0-9]{12}$", var.account_id))
    error_message = "account_id: set the 12 digits of the account, such as data.aws_caller_identity.this.account_id."
  }
}

variable "region" {
  description = "The AWS region, as the provider has it."
  type        = string

  validation {
    condition     = can(regex("^[a-z]{2}(-[a-z]+)+-[0-9]$", var.region))
    error_message = "region: set an AWS region, such as eu-central-1."
  }
}

variable "partition" {
  description = "The AWS partition, as the provider has it."
  type        = string
  default     = "aws"

  validation {
    condition     = contains(["aws", "aws-cn", "aws-us-gov"], var.partition)
    error_message = "partition: set aws, aws-cn or aws-us-gov."
  }
}

variable "zones" {
  description = "Availability zones of the subnets that are made; null: the first two of the region."
  type        = list(string)
  default     = null

  validation {
    condition     = var.zones == null || alltrue([for one in coalesce(var.zones, []) : startswith(one, var.region)])
    error_message = "zones: set zones of the region, such as eu-central-1a, or null."
  }
}

variable "existing_vpc" {
  description = "A VPC that is there already, with its private subnets and their route tables; null: one is made."
  type = object({
    vpc_id          = string
    cidr            = string
    subnet_ids      = list(string)
    route_table_ids = optional(list(string), [])
  })
  default = null
}

variable "vpc_cidr" {
  description = "Range of the VPC that is made."
  type        = string
  default     = "10.20.0.0/16"
}

variable "create_endpoints" {
  description = "Whether to make the VPC's endpoints to AWS."
  type        = bool
  default     = true
}

variable "endpoint_services" {
  description = "Services to have an interface endpoint of their own; null: all that jobs and Airflow ask."
  type        = list(string)
  default     = null
}

variable "existing_kms_key_arn" {
  description = "A KMS key that is there already; null: one is made."
  type        = string
  default     = null
}

variable "namespace" {
  description = "Glue database of the lake; null: PROJECT_ENVIRONMENT."
  type        = string
  default     = null

  validation {
    condition     = var.namespace == null || can(regex("^[a-z][a-z0-9_]{0,254}$", coalesce(var.namespace, "-")))
    error_message = "namespace: set small letters, digits and underscores, a letter first, or null."
  }
}

variable "catalog" {
  description = "The catalog's name in Spark and tailrace. All who share tables use the same one."
  type        = string
  default     = "lake"

  validation {
    condition     = can(regex("^[a-z][a-z0-9_]*$", var.catalog))
    error_message = "catalog: set small letters, digits and underscores, a letter first."
  }
}

variable "more_databases" {
  description = "Further Glue databases on the same warehouse, such as the marts of dbt."
  type        = list(string)
  default     = []
}

variable "lake_days" {
  description = "Days: for which deleted files can be had back, after which checkpoints expire, and for which job logs are kept."
  type = object({
    noncurrent = optional(number, 14)
    checkpoint = optional(number, 30)
    logs       = optional(number, 90)
  })
  default = {}
}

variable "log_days" {
  description = "Days for which CloudWatch keeps logs."
  type        = number
  default     = 365
}

variable "access_logs" {
  description = "Whether to log who reads and writes the buckets."
  type        = bool
  default     = true
}

variable "encrypt_catalog" {
  description = "Whether to encrypt the account's Glue catalog with the key."
  type        = bool
  default     = false
}

variable "force_destroy" {
  description = "Whether terraform destroy deletes the buckets with all that is in them, and secrets at once."
  type        = bool
  default     = false
}

variable "landing" {
  description = "Where files land that streams read: by bucket name, the prefix in it."
  type        = map(string)
  default     = {}

  validation {
    condition     = alltrue([for bucket, prefix in var.landing : can(regex("^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$", bucket)) && !startswith(prefix, "/") && !strcontains(prefix, "*")])
    error_message = "landing: set { \"BUCKET\" = \"PREFIX/\" }: names of buckets without s3://, and prefixes without a slash at the beginning or a *."
  }
}

variable "analyst_principals" {
  description = "ARNs of who may take the analysts' role; empty: there is no such role."
  type        = list(string)
  default     = []
}

variable "secrets" {
  description = "Secrets to make, without values, by name: what each is for and which of stream, backfill and airflow may read it."
  type = map(object({
    description = string
    readers     = list(string)
  }))
  default = {}
}

variable "create_mwaa" {
  description = "Whether to make an MWAA environment, of mwaa.airflow_version; false where Airflow is elsewhere or not used."
  type        = bool
  default     = false
}

variable "mwaa" {
  description = "Airflow's version (3.1 or later), size, whether its pages are on the internet, and the versions of plugins.zip and requirements-mwaa.txt."
  type = object({
    airflow_version      = optional(string)
    environment_class    = optional(string, "mw1.small")
    max_workers          = optional(number, 2)
    public_webserver     = optional(bool, false)
    plugins_version      = optional(string)
    requirements_version = optional(string)
    options              = optional(map(string), {})
  })
  default = {}

  validation {
    condition     = var.mwaa.airflow_version == null ? !var.create_mwaa : can(regex("^3\\.[1-9][0-9]*\\.[0-9]+$", coalesce(var.mwaa.airflow_version, "-")))
    error_message = "mwaa.airflow_version: set a version that MWAA offers, 3.1 or later, such as 3.1.8: tailrace needs it. If MWAA offers none yet, set create_mwaa = false and run the DAGs in an Airflow of your own."
  }
}

variable "streams" {
  description = "Streams to watch, by the name of the log that each reads: lag_seconds and silent_minutes, each 0 to have no such alarm."
  type = map(object({
    lag_seconds    = optional(number, 900)
    silent_minutes = optional(number, 15)
  }))
  default = {}
}

variable "alarm_emails" {
  description = "Addresses that alarms and budgets are sent to."
  type        = list(string)
  default     = []
}

variable "monthly_budget" {
  description = "US dollars a month that are planned; null: no budget."
  type        = number
  default     = null
}
